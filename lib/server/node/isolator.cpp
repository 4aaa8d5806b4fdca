#include "server/node/isolator.h"

#include <utility>

namespace talon::server::node {

isolate::SandboxSpec sandbox_spec(const SandboxWish& wish, std::string id,
                                  bool unconfined_seccomp) {
  isolate::SandboxSpec spec;
  spec.id = std::move(id);
  spec.hostname = wish.hostname;
  spec.storage = wish.storage;
  spec.proc = wish.proc;
  spec.limits = wish.limits;
  spec.shm_bytes = wish.shm_bytes;
  spec.disk_bytes = wish.disk_bytes;
  spec.workspace_bytes = wish.workspace_bytes;
  spec.default_cwd = wish.cwd;
  spec.unconfined_seccomp = unconfined_seccomp;
  return spec;
}

namespace {

class NamespaceIsolator final : public Isolator {
 public:
  explicit NamespaceIsolator(std::unique_ptr<isolate::Launcher> launcher)
      : launcher_(std::move(launcher)) {}

  std::string_view tier() const override { return "namespace"; }
  const isolate::HostFacts& host() const override { return launcher_->host(); }
  std::string cgroup_path() const override { return launcher_->cgroup_path(); }
  Result<> check_limits(const isolate::Limits& limits) const override {
    return launcher_->check_limits(limits);
  }
  Result<> check_sizes(const isolate::SandboxSpec& spec) const override {
    return launcher_->check_sizes(spec);
  }
  Result<std::unique_ptr<isolate::Sandbox>> create(const isolate::SandboxSpec& spec,
                                                   const isolate::SandboxDirs& dirs) override {
    return launcher_->create(spec, dirs);
  }
  Result<std::unique_ptr<isolate::Sandbox>> adopt(const isolate::Identity& identity) override {
    return launcher_->adopt(identity);
  }
  std::vector<std::string> sweep(const std::vector<std::string>& keep) override {
    return launcher_->sweep(keep);
  }
  isolate::Launcher::Counters counters() const override { return launcher_->counters(); }
  isolate::Launcher* launcher() override { return launcher_.get(); }

 private:
  std::unique_ptr<isolate::Launcher> launcher_;
};

}  // namespace

std::unique_ptr<Isolator> make_namespace_isolator(std::unique_ptr<isolate::Launcher> launcher) {
  return std::make_unique<NamespaceIsolator>(std::move(launcher));
}

}  // namespace talon::server::node
