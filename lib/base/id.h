#pragma once
// Ids: a two-letter kind prefix and 20 characters of [a-z0-9] (103 random bits). Lower case,
// DNS-safe, no dash, never reused.

#include <string>
#include <string_view>

namespace talon {

enum class IdKind { sandbox, exec, workspace, snapshot, key, tenant, event, request, instance };

std::string_view prefix(IdKind kind);  // "sb" "px" "ws" "sn" "ky" "tn" "ev" "rq" "in"
std::string new_id(IdKind kind);       // getrandom(2); aborts if the kernel has no randomness
bool is_id(IdKind kind, std::string_view text);

// `bytes` random bytes as lower-case hex (2 characters a byte).
std::string random_hex(std::size_t bytes);

}  // namespace talon
