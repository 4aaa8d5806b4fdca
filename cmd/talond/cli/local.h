#pragma once
// Where one `talond run` keeps its things (decision 40), and how those of a dead one go away.
//
//   <run_dir>/local/<pid>/        owner (locked while the process lives), <id>/init.sock
//   <data_dir>/local/<pid>.<hex>/ logs/ [upper/ work/ workspace/]
//
// The second part is under the data directory because <run_dir> is usually a small tmpfs that
// the host itself needs, and because old kernels cannot idmap a tmpfs (decision 29).

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "config.h"

namespace talon::cli {

class LocalRun {
 public:
  // Sweeps what dead ones left, then makes both directories. `private_workspace`: also
  // workspace/, writable for everybody inside when `any_user`.
  struct Options {
    bool private_workspace = true;
    bool any_user = false;
  };
  static Result<LocalRun> make(const Config& config, Options options);
  LocalRun(LocalRun&&) noexcept = default;
  LocalRun& operator=(LocalRun&&) = delete;
  ~LocalRun();  // remove(), its error ignored

  const std::string& run_dir() const { return run_dir_; }
  const DirFd& root() const { return root_; }
  const DirFd& logs() const { return logs_; }
  const DirFd& workspace() const { return workspace_; }

  // What a sweep after our death needs to know, before the sandbox is made. `cgroup`: this run's
  // own talon-local-… group ("" = none), `image`: "name-generation".
  Result<> note(const std::string& cgroup, const std::string& image);
  // Removes the group and both directories. Idempotent.
  Result<> remove();

 private:
  LocalRun() = default;
  std::string run_dir_;
  std::string scratch_;
  std::string cgroup_;
  UniqueFd owner_;
  DirFd root_, logs_, workspace_;
};

// Ends and removes what runs left whose talond is dead; called by `run` and `serve`. Returns
// one line for each. Nothing there is success.
Result<std::vector<std::string>> sweep_local(const std::string& run_dir);

// "name-generation" of the images that living runs use.
Result<std::vector<std::string>> local_images_in_use(const std::string& run_dir);

// mkdir of a path with its parents (0755), the last one 0700.
Result<> make_private_path(const std::string& path);

}  // namespace talon::cli
