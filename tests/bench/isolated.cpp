#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "bench/contenders.h"
#include "isolate/image/tree.h"

namespace talon::bench {

using namespace std::chrono_literals;

Result<std::unique_ptr<Isolated>> Isolated::start(const Workshop& shop) {
  std::unique_ptr<Isolated> self{new Isolated{shop}};
  for (const char* dir : {"isolate", "isolate/sandboxes", "isolate/trash"}) {
    if (mkdir(shop.path(dir).c_str(), 0700) != 0) {
      return fail_sys(errno, dir);
    }
  }
  if (mkdir(Workshop::run_path("isolate").c_str(), 0700) != 0) {
    return fail_sys(errno, "make a run directory");
  }
  TALON_TRY(images, isolate::ImageStore::open(shop.path("isolate")));
  TALON_TRY(info, images.import("bench", shop.rootfs()));
  TALON_TRY(image, images.get("bench", info.generation));
  self->image_ = std::move(image.root);
  TALON_TRY(launcher, isolate::Launcher::start({.run_dir = Workshop::run_path("isolate"),
                                                .cgroup_path = "",
                                                .instance = "bench" + random_hex(4),
                                                .lease_dir = Workshop::run_path("ids")}));
  self->launcher_ = std::move(launcher);
  TALON_TRY(box, self->prepare({}));
  self->standing_ = std::move(box);
  TALON_CHECK(self->create(self->standing_));
  return self;
}

Isolated::~Isolated() {
  if (standing_.sandbox) {
    (void)end(standing_);
  }
  if (launcher_) {
    (void)launcher_->sweep({});
    const std::string group = launcher_->cgroup_path();
    launcher_.reset();
    (void)rmdir(group.c_str());
  }
}

namespace {

isolate::SandboxSpec spec_of(const Isolated::Box& box) {
  isolate::SandboxSpec spec;
  spec.id = box.id;
  return spec;
}

}  // namespace

// With what a daemon does around it: directories made before, renamed to the trash after.
Result<Isolated::Box> Isolated::prepare(std::optional<isolate::Ahead> stage) {
  Box box;
  box.id = new_id(IdKind::sandbox);
  const std::string base = shop_.path("isolate/sandboxes/" + box.id);
  for (const auto& [name, mode] :
       {std::pair{"", 0755u}, std::pair{"/upper", 0755u}, std::pair{"/work", 0755u},
        std::pair{"/logs", 0700u}, std::pair{"/workspace", 0755u}}) {
    if (mkdir((base + name).c_str(), mode) != 0) {
      return fail_sys(errno, "make " + base + name);
    }
  }
  TALON_TRY(root, open_at(AT_FDCWD, base, O_RDONLY | O_DIRECTORY));
  TALON_TRY(workspace, open_at(root.get(), "workspace", O_RDONLY | O_DIRECTORY));
  box.root = std::move(root);
  box.workspace = std::move(workspace);
  if (stage) {
    TALON_TRY(ahead, launcher_->prepare(
                         *stage, spec_of(box),
                         {.image = &image_, .root = &box.root, .workspace = &box.workspace}));
    box.ahead = std::make_unique<isolate::Prepared>(std::move(ahead));
  }
  return box;
}

Result<> Isolated::create(Box& box) {
  const isolate::SandboxDirs dirs{.image = &image_, .root = &box.root, .workspace = &box.workspace};
  auto made = box.ahead ? launcher_->create(spec_of(box), dirs, std::move(*box.ahead))
                        : launcher_->create(spec_of(box), dirs);
  box.ahead.reset();
  TALON_TRY(sandbox, std::move(made));
  box.sandbox = std::move(sandbox);
  return {};
}

Result<double> Isolated::exec(Box& box) {
  double started = 0;
  const double begin = now_us();
  isolate::ExecSpec spec;
  spec.id = new_id(IdKind::exec);
  spec.argv = {"/bin/true"};
  isolate::add_default_env(spec.env);
  TALON_TRY(request, box.sandbox->exec(spec));
  (void)request;
  for (;;) {
    TALON_TRY(event, box.sandbox->wait_event(10s));
    if (const auto* exited = std::get_if<isolate::event::Exited>(&event)) {
      if (exited->px == spec.id) {
        if (exited->info.code != 0) {
          return fail(Code::internal, "exit code " + std::to_string(exited->info.code));
        }
        return started - begin;
      }
    } else if (std::get_if<isolate::event::Started>(&event) != nullptr) {
      started = now_us();
    } else if (const auto* failed = std::get_if<isolate::event::ExecFailed>(&event)) {
      return fail_sys(failed->error, "exec");
    } else if (const auto* closed = std::get_if<isolate::event::Closed>(&event)) {
      return fail(Code::unavailable, "init is gone: " + closed->reason);
    }
  }
}

Result<> Isolated::end(Box& box) {
  TALON_CHECK(box.sandbox->kill(10s));
  TALON_CHECK(box.sandbox->remove());
  box.sandbox.reset();
  const std::string from = shop_.path("isolate/sandboxes/" + box.id);
  if (rename(from.c_str(), shop_.path("isolate/trash/" + box.id).c_str()) != 0) {
    return fail_sys(errno, "rename to trash");
  }
  return {};
}

Result<> Isolated::reap(const Box& box) {
  return isolate::image::remove_tree(AT_FDCWD, shop_.path("isolate/trash/" + box.id));
}

Result<double> Isolated::cycle(std::optional<isolate::Ahead> stage) {
  double begin = now_us();
  TALON_TRY(box, prepare(stage));
  if (stage) {
    begin = now_us();
  }
  TALON_CHECK(create(box));
  const auto ran = exec(box);
  const auto ended = end(box);
  const double took = now_us() - begin;
  TALON_CHECK(ran);
  TALON_CHECK(ended);
  box.root.reset();
  box.workspace.reset();
  TALON_CHECK(reap(box));
  return took;
}

Result<double> Isolated::exec_standing() {
  const double begin = now_us();
  TALON_CHECK(exec(standing_));
  return now_us() - begin;
}

void add_rows(std::vector<Row>& rows, Lazy<Isolated>& isolated) {
  using isolate::Ahead;
  const auto cycle = [&](const char* name, std::optional<Ahead> stage, double bar,
                         const char* text) {
    rows.push_back({.name = name,
                    .base = "crun run",
                    .bar = bar,
                    .bar_text = text,
                    .once = [&isolated, stage]() -> Result<double> {
                      TALON_TRY(it, isolated.get());
                      return it->cycle(stage);
                    }});
  };
  cycle("isolate: create + exec + delete, nothing pooled", {}, 1.0 / 4, "1/4");
  // The daemon's own pools hold whole sandboxes of the last shape (docs/adr/0014).
  cycle("isolate: create + exec + delete, pooled", Ahead::warm, 1.0 / 10, "1/10");
  cycle("isolate: create + exec + delete, from a pooled tree", Ahead::tree, 0, "");
  rows.push_back({.name = "isolate: exec in a running sandbox",
                  .base = "crun exec",
                  .bar = 1.0 / 20,
                  .bar_text = "1/20",
                  .once = [&isolated]() -> Result<double> {
                    TALON_TRY(it, isolated.get());
                    return it->exec_standing();
                  }});
  rows.push_back({.name = "isolate: exec, until its program runs",
                  .base = "crun exec",
                  .once = [&isolated]() -> Result<double> {
                    TALON_TRY(it, isolated.get());
                    return it->exec_standing_until_started();
                  }});
}

}  // namespace talon::bench
