#pragma once
// What lies under <data> for one sandbox, and how it goes away: made whole or not at all,
// renamed into trash/ on the request path, removed off it by a walk that uses directory
// descriptors only (bounded in number, never following a link), so a hostile tree costs time
// and nothing else. Synchronous: called through Offload.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/spec.h"

namespace talon::server::node {

struct HostIds {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

class DataDir {
 public:
  // Makes <data> (0700) and sandboxes/ workspaces/ trash/ in it.
  static Result<DataDir> open(const std::string& path);

  const std::string& path() const { return path_; }

  // sandboxes/<id>/{upper,work,logs}; returns the descriptor of sandboxes/<id>.
  Result<DirFd> make_sandbox(const std::string& id) const;
  Result<DirFd> open_sandbox(const std::string& id) const;
  // sandboxes/<id>/logs; not_found when it is gone.
  Result<DirFd> open_logs(const std::string& id) const;
  // workspaces/<ws>/g<generation>, owned by `owner` (0-based ids).
  Result<DirFd> make_workspace(const std::string& ws, std::uint32_t generation,
                               HostIds owner) const;
  Result<DirFd> open_workspace(const std::string& ws, std::uint32_t generation) const;
  // Beside g<generation>: the image of one whose size a loop device limits (isolate/disk.h).
  static std::string workspace_image(std::uint32_t generation) {
    return "g" + std::to_string(generation) + ".img";
  }

  // Renames into trash/. Missing = done.
  Result<> trash_sandbox(const std::string& id) const;
  Result<> trash_workspace(const std::string& ws) const;
  Result<std::vector<std::string>> sandboxes() const;  // names of the directories
  Result<std::vector<std::string>> workspaces() const;

  // Removes at most `budget` entries from trash/; true when trash/ is empty.
  Result<bool> empty_trash(std::size_t budget) const;

  // The preallocated file that is given up when the disk is full (decision 24).
  bool reserve_present() const;
  void give_up_reserve() const;
  Result<> make_reserve() const;

 private:
  DataDir(std::string path, DirFd root) : path_(std::move(path)), root_(std::move(root)) {}
  Result<> trash(const std::string& folder, const std::string& name) const;
  Result<std::vector<std::string>> names(const std::string& folder) const;

  std::string path_;
  DirFd root_;
};

// The ids of `user` ("", "name", "uid", with ":group") by the image's own passwd and group,
// which are read without following links. invalid_request naming "user" when there is no such
// name. Numbers need not be in passwd (EX-23).
Result<HostIds> lookup_user(const DirFd& image_root, std::string_view user);

}  // namespace talon::server::node
