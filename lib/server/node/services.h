#pragma once
// Services of a sandbox: commands that the daemon starts with it and again when they end. Each
// process of one is an exec as any other, with its own log; it goes on while no daemon runs, and
// what ended meanwhile is settled when one is back (ADR 0016).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/async/task.h"
#include "server/node/types.h"
#include "store/tables.h"

namespace talon::server::node {

inline constexpr std::size_t kServices = 32;                 // of one sandbox
inline constexpr std::string_view kCommandService = "main";  // the `command` of a create

struct Service {
  explicit Service(Executor ex) : changed(std::move(ex)) {}

  store::ServiceRow row;
  ServiceSpec spec;
  std::optional<std::int64_t> next_ms;  // of the next start, while it is in backoff
  // Who took the last turn keeps it running; a supervisor whose turn has passed leaves it alone.
  std::uint64_t turn = 0;
  Notifier changed;
};
using ServicePtr = std::shared_ptr<Service>;
using Services = std::map<std::string, ServicePtr>;

// The spec_json of a row; the values of env are in it, for the next start.
std::string encode(const ServiceSpec& spec);
Result<ServiceSpec> decode_service_spec(std::string_view text);
std::string_view to_string(Restart restart);

// Whether it is started again after such an end, and when: the delay doubles with each end in a
// row.
bool wants_restart(Restart restart, bool failed);
Millis backoff_delay(const ServiceSpec& spec, unsigned ends_in_a_row);

}  // namespace talon::server::node
