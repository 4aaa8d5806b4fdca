#pragma once
// What the machine shows of processes, mounts and cgroups; read-only, but for end_group and
// remove_tree, which tests call on what they made themselves.

#include <sys/types.h>

#include <string>
#include <vector>

namespace talon::test::machine {

std::string read_file(const std::string& path);                   // "" when it cannot be read
std::vector<std::string> entries(const std::string& path);        // sorted; empty when missing
std::string cgroup2_mount();                                      // "" when there is none
std::vector<std::string> groups_below(const std::string& group);  // without itself, parents first
std::vector<pid_t> processes_below(const std::string& group);     // itself included
std::string comm(pid_t pid);
// Lines of this process's mountinfo that name talon.
std::vector<std::string> mounts();
// Network namespaces that some process of the machine is in, "net:[…]".
std::vector<std::string> network_namespaces();
// Kills what runs in a group and below, and removes it. False when something is left.
bool end_group(const std::string& group);
// rm -r that never crosses into another file system and follows no link.
void remove_tree(const std::string& path);

}  // namespace talon::test::machine
