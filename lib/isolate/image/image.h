#pragma once
// Read-only root trees under <data>/images/. An image is a directory <name>-<generation>/ with a
// root/ tree and a manifest.json (name, generation, created_at, kind, source); it is complete
// when it has been renamed into place. Sandboxes keep the generation they were made from.
//
// `host` (decision 27): /usr by hard links (only what others may read, no devices, no setuid
// bits are needed to be kept: mounts are nosuid), /etc by an allowlist, our own passwd, group,
// hosts, resolv.conf; nothing else of the host.
//
// A hard-linked file IS the host's file. An image is therefore never written to once it is in
// place: it is only ever mounted read-only, nosuid and nodev, as the lower layer of an overlay,
// and removed by unlink, never truncated or chmod'ed. Two consequences are part of the promise
// and no fault: a file that the host changes in place (packages do not: dpkg renames) changes in
// the image, and root inside may read a file whose mode the host narrows later; `refresh` makes
// a new generation. When <data> is on another file system than /usr, files are reflinked or
// copied instead, and the manifest's `method` says so.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace talon::isolate {

struct ImageInfo {
  std::string name;  // "host", or as imported
  std::uint32_t generation = 1;
  std::string kind;        // "host" | "import"
  std::string source;      // what it was made from
  std::string created_at;  // RFC 3339
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

// Called while an image is made: files so far and a short word ("usr", "etc", "done").
using ImageProgress = std::function<void(std::uint64_t files, std::string_view stage)>;

class ImageStore {
 public:
  // `data_dir`/images is made if missing (0700).
  static Result<ImageStore> open(const std::string& data_dir);

  // The newest generation's root/ directory and its facts; not_found with the names that exist.
  struct Opened {
    DirFd root;
    ImageInfo info;
  };
  Result<Opened> get(std::string_view name) const;
  Result<Opened> get(std::string_view name, std::uint32_t generation) const;
  Result<std::vector<ImageInfo>> list() const;

  // Makes `host` if it does not exist (or always, with refresh), under a file lock, so that two
  // talonds on one data dir make it once.
  Result<ImageInfo> ensure_host(bool refresh, const ImageProgress& progress = {});

  // From a directory or a tar (plain, gz, zst) at `path`. Entries never leave the new tree
  // (CVE-2021-29136, CVE-2019-19921 …): absolute names and `..` are refused or confined, device
  // nodes and trusted.*/overlay xattrs dropped, setuid kept as mode bits (mounts are nosuid).
  // Ids above 65535 are squashed to 65534.
  Result<ImageInfo> import(std::string_view name, const std::string& path,
                           const ImageProgress& progress = {});

  // Removes all generations of `name` that `in_use` does not name ("name-generation").
  Result<> remove(std::string_view name, const std::vector<std::string>& in_use);

 private:
  explicit ImageStore(std::string path) : path_(std::move(path)) {}
  std::string path_;  // <data>/images
};

// [a-z0-9][a-z0-9._-]{0,63}; bad_field("image", …) otherwise.
Result<> check_image_name(std::string_view name);

}  // namespace talon::isolate
