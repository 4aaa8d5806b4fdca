// Making sandboxes: what of it happens before a create (pools), and the rest on its path.

#include <boost/json.hpp>

#include <utility>

#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "server/node/codec.h"
#include "server/node/node.h"

namespace talon::server::node {

namespace json = boost::json;

namespace {

constexpr std::uint64_t kImageLogEvery = 20'000;  // files between two lines of progress
constexpr std::string_view kPrewarmSetting = "prewarm";

isolate::PoolImage pool_image(isolate::ImageStore::Opened opened) {
  return {.name = opened.info.name,
          .generation = opened.info.generation,
          .root = std::make_shared<const DirFd>(std::move(opened.root))};
}

// The shape of a warm sandbox: everything that a create does not ask for has its default.
isolate::SandboxSpec warm_spec(const PrewarmWish& wish, const NodeConfig& config) {
  SandboxWish all;
  all.image = wish.image;
  all.storage = wish.storage;
  all.proc = config.default_proc;
  return sandbox_spec(all, "", config.unconfined_seccomp);
}

std::string encode_wishes(const std::map<std::string, PrewarmWish>& wishes) {
  json::array out;
  for (const auto& [image, wish] : wishes) {
    out.emplace_back(json::object{
        {"image", image}, {"size", wish.size}, {"storage", static_cast<int>(wish.storage)}});
  }
  return json::serialize(out);
}

// Our own writing; what does not read is as if it were not there.
std::map<std::string, PrewarmWish> decode_wishes(const std::string& text) {
  std::map<std::string, PrewarmWish> out;
  boost::system::error_code failed;
  const json::value parsed = json::parse(text, failed);
  const json::array* list = failed ? nullptr : parsed.if_array();
  for (const json::value& item : list != nullptr ? *list : json::array{}) {
    const json::object* row = item.if_object();
    const auto* image = row != nullptr ? row->if_contains("image") : nullptr;
    const auto* size = row != nullptr ? row->if_contains("size") : nullptr;
    const auto* storage = row != nullptr ? row->if_contains("storage") : nullptr;
    if (image != nullptr && image->is_string() && size != nullptr && size->is_int64() &&
        storage != nullptr && storage->is_int64()) {
      PrewarmWish wish{.image = std::string{image->as_string()},
                       .size = static_cast<std::size_t>(size->as_int64()),
                       .storage = static_cast<isolate::Storage>(storage->as_int64())};
      out.emplace(wish.image, wish);
    }
  }
  return out;
}

}  // namespace

// ---- on the path of a create

// Bad input never makes a row: limits, image and user are looked at first.
Task<Node::Chosen> Node::choose(const SandboxWish& wish) {
  std::function<Result<Chosen>()> job = [isolator = parts_.isolator, images = parts_.images,
                                         wish]() -> Result<Chosen> {
    TALON_CHECK(isolator->check_limits(wish.limits));
    TALON_CHECK(isolator->check_sizes(sandbox_spec(wish, "", false)));
    auto image = images->get(wish.image);
    if (!image) {
      if (image.error().code == Code::not_found && wish.image == "host") {
        return Chosen{};  // made at first use
      }
      if (image.error().code == Code::not_found) {
        return bad_field("image", image.error().message);
      }
      return std::unexpected(std::move(image).error());
    }
    TALON_TRY(owner, lookup_user(image->root, wish.user));
    return Chosen{.image = pool_image(std::move(*image)), .owner = owner, .ahead = {}};
  };
  auto chosen = co_await parts_.offload->run<Chosen>(std::move(job));
  // The image of a workspace with a size belongs to the user it was made for: nobody's yet.
  const bool owned = !wish.user.empty() && wish.workspace_bytes.has_value();
  if (chosen && pool_ != nullptr && !owned) {
    chosen->ahead = pool_->take(sandbox_spec(wish, "", config_.unconfined_seccomp), chosen->image);
  }
  co_return chosen;
}

// Of a create that came to nothing before its row.
Task<> Node::give_up(std::shared_ptr<isolate::PoolEntry> ahead) {
  std::function<Result<>()> job = [pool = pool_, ahead = std::move(ahead)]() -> Result<> {
    pool->destroy(*ahead);
    return {};
  };
  auto done = co_await parts_.offload->run<void>(std::move(job));
  co_return done;
}

Result<isolate::PoolImage> Node::make_host_image() const {
  log_info("image_making", {{"image", "host"}});
  auto made = parts_.images->ensure_host(
      false, [told = std::uint64_t{0}](std::uint64_t files, std::string_view stage) mutable {
        if (files >= told + kImageLogEvery || stage == "done") {
          told = files;
          log_info("image_progress", {{"image", "host"}, {"files", files}, {"stage", stage}});
        }
      });
  if (!made) {
    return std::unexpected(std::move(made.error()).in("make the image host"));
  }
  TALON_TRY(opened, parts_.images->get("host"));
  return pool_image(std::move(opened));
}

// The whole of making one, on a pool thread: the image if it is not there yet, directories, the
// workspace, and the sandbox itself, as far as they were not made ahead. What is on disk of one
// that fails is trashed by fail_create.
std::function<Result<Node::Made>()> Node::creation_job(const ActorPtr& actor,
                                                       const SandboxWish& wish,
                                                       Chosen chosen) const {
  isolate::SandboxSpec spec = sandbox_spec(wish, actor->id(), config_.unconfined_seccomp);
  return [this, data = parts_.data, spec = std::move(spec), wish,
          workspace_id = actor->row.workspace, generation = actor->row.image_generation,
          chosen = std::move(chosen)]() mutable -> Result<Made> {
    isolate::PoolImage& image = chosen.image;
    if (image.root == nullptr) {
      auto opened = generation != 0 ? parts_.images->get(wish.image, generation)
                                    : parts_.images->get(wish.image);
      if (!opened && opened.error().code == Code::not_found && wish.image == "host") {
        TALON_TRY(made, make_host_image());
        image = std::move(made);
      } else {
        TALON_TRY(found, std::move(opened));
        image = pool_image(std::move(found));
      }
      TALON_CHECK(fault::point("create.image"));
      TALON_TRY(owner, lookup_user(*image.root, wish.user));
      chosen.owner = owner;
    }
    DirFd root;
    DirFd workspace;
    isolate::PoolEntry* ahead = chosen.ahead.get();
    if (ahead != nullptr) {
      root = std::move(ahead->place.root);
      workspace = std::move(ahead->place.workspace_root);
    } else {
      TALON_TRY(made, data->make_sandbox(spec.id));
      root = std::move(made);
    }
    if (ahead == nullptr || !wish.user.empty()) {
      TALON_TRY(made, data->make_workspace(workspace_id, 1, chosen.owner));
      workspace = std::move(made);
    }
    const isolate::SandboxDirs dirs{.image = image.root.get(),
                                    .root = &root,
                                    .workspace = &workspace,
                                    .workspace_image = DataDir::workspace_image(1)};
    auto sandbox = ahead != nullptr ? parts_.isolator->launcher()->create(
                                          spec, dirs, std::move(*ahead->prepared))
                                    : parts_.isolator->create(spec, dirs);
    if (!sandbox) {
      return std::unexpected(std::move(sandbox).error());
    }
    return Made{.sandbox = std::move(*sandbox), .generation = image.generation};
  };
}

// ---- ahead of it

Task<> Node::start_pool() {
  isolate::Launcher* launcher = parts_.isolator->launcher();
  if (launcher == nullptr) {
    co_return Result<>{};
  }
  const DataDir* data = parts_.data;
  isolate::PoolHome home{.make = [data]() -> Result<isolate::PoolPlace> {
                           isolate::PoolPlace place{.id = new_id(IdKind::sandbox),
                                                    .workspace = new_id(IdKind::workspace),
                                                    .root = {},
                                                    .workspace_root = {},
                                                    .workspace_image = DataDir::workspace_image(1)};
                           TALON_TRY(root, data->make_sandbox(place.id));
                           place.root = std::move(root);
                           auto workspace = data->make_workspace(place.workspace, 1, {});
                           if (!workspace) {
                             (void)data->trash_sandbox(place.id);
                             return std::unexpected(std::move(workspace).error());
                           }
                           place.workspace_root = std::move(*workspace);
                           return place;
                         },
                         .discard =
                             [data](const isolate::PoolPlace& place) {
                               // What cannot be moved now is found by the next start: no row names
                               // it.
                               (void)data->trash_sandbox(place.id);
                               (void)data->trash_workspace(place.workspace);
                             }};
  pool_ = std::make_shared<isolate::Pool>(*launcher, std::move(home), config_.pools);
  std::function<Result<std::string>()> read = [store = parts_.store]() -> Result<std::string> {
    std::string text;
    TALON_CHECK(store->read([&](store::Db& db) -> Result<> {
      TALON_TRY(found, store::get_setting(db, kPrewarmSetting));
      text = found.value_or("[]");
      return {};
    }));
    return text;
  };
  auto text = co_await parts_.offload->run<std::string>(std::move(read));
  TALON_CO_TRY(stored, std::move(text));
  for (const auto& [image, wish] : decode_wishes(stored)) {
    auto kept = co_await keep_warm(wish);
    if (!kept) {
      log_warn("prewarm", {{"image", image}, {"error", kept.error().message}});
    }
  }
  pool_->start();
  co_return Result<>{};
}

Task<> Node::stop_pool() {
  std::function<Result<>()> job = [pool = std::move(pool_)]() mutable -> Result<> {
    pool.reset();  // ends its thread and destroys what nobody took
    return {};
  };
  pool_ = nullptr;
  auto done = co_await parts_.offload->run<void>(std::move(job));
  co_return done;
}

Task<> Node::keep_warm(PrewarmWish wish) {
  std::function<Result<isolate::PoolImage>()> job = [images = parts_.images,
                                                     wish]() -> Result<isolate::PoolImage> {
    auto opened = images->get(wish.image);
    if (!opened && opened.error().code == Code::not_found) {
      return bad_field("image", opened.error().message);
    }
    TALON_TRY(found, std::move(opened));
    return pool_image(std::move(found));
  };
  auto opened = co_await parts_.offload->run<isolate::PoolImage>(std::move(job));
  TALON_CO_TRY(image, std::move(opened));
  pool_->keep_warm(image, warm_spec(wish, config_), wish.size);
  prewarm_[wish.image] = std::move(wish);
  co_return Result<>{};
}

Task<> Node::set_prewarm(PrewarmWish wish) {
  if (pool_ == nullptr) {
    co_return fail(Code::unenforceable, "this tier makes no sandboxes ahead");
  }
  std::size_t others = 0;
  for (const auto& [image, kept] : prewarm_) {
    others += image == wish.image ? 0 : kept.size;
  }
  if (others + wish.size > config_.max_warm) {
    co_return bad_field("size",
                        "all warm sandboxes together may be " + std::to_string(config_.max_warm) +
                            " (pools.max_warm); the other images have " + std::to_string(others));
  }
  if (wish.size != 0) {
    auto kept = co_await keep_warm(std::move(wish));
    if (!kept) {
      co_return kept;
    }
  } else if (const auto found = prewarm_.find(wish.image); found != prewarm_.end()) {
    pool_->keep_warm({.name = wish.image, .generation = 0, .root = nullptr}, {}, 0);
    prewarm_.erase(found);
  } else {
    co_return fail(Code::not_found, "nothing is kept warm of the image " + wish.image);
  }
  std::function<Result<>()> job = [store = parts_.store,
                                   text = encode_wishes(prewarm_)]() -> Result<> {
    return store->write(
        [&](store::Db& db) -> Result<> { return store::set_setting(db, kPrewarmSetting, text); });
  };
  auto written = co_await parts_.offload->run<void>(std::move(job));
  co_return written;
}

std::vector<Prewarmed> Node::prewarmed() const {
  std::vector<Prewarmed> out;
  for (const isolate::Pool::Warm& warm :
       pool_ ? pool_->warm() : std::vector<isolate::Pool::Warm>{}) {
    const auto wish = prewarm_.find(warm.image);
    out.push_back(
        {.state = warm,
         .storage = wish == prewarm_.end() ? isolate::Storage::disk : wish->second.storage});
  }
  return out;
}

std::vector<isolate::Pool::Count> Node::pool_counts() const {
  return pool_ ? pool_->counts() : std::vector<isolate::Pool::Count>{};
}

}  // namespace talon::server::node
