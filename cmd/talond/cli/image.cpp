#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/local.h"
#include "cli/progress.h"
#include "isolate/image/image.h"
#include "store/db.h"
#include "store/tables.h"

namespace talon::cli {

namespace {

using isolate::ImageInfo;
using isolate::ImageStore;

Result<ImageStore> open_images(const Config& config) {
  TALON_CHECK(make_private_path(config.data_dir));
  return ImageStore::open(config.data_dir);
}

void print_made(const ImageInfo& info) {
  std::printf("%s generation %u: %llu files, %llu bytes\n", info.name.c_str(), info.generation,
              static_cast<unsigned long long>(info.files),
              static_cast<unsigned long long>(info.bytes));
}

std::string as_json(const std::vector<ImageInfo>& images) {
  std::string out = "{\"items\":[";
  bool first = true;
  for (const ImageInfo& info : images) {
    out += first ? "\n" : ",\n";
    first = false;
    out += "{\"name\":";
    append_json_string(out, info.name);
    out += ",\"generation\":" + std::to_string(info.generation) + ",\"kind\":";
    append_json_string(out, info.kind);
    out += ",\"source\":";
    append_json_string(out, info.source);
    out += ",\"created_at\":";
    append_json_string(out, info.created_at);
    out += ",\"files\":" + std::to_string(info.files) + ",\"bytes\":" + std::to_string(info.bytes) +
           "}";
  }
  return out + "\n]}\n";
}

// Of the daemon's sandboxes, read beside it if it runs, and of living local runs.
Result<std::vector<std::string>> used_images(const Config& config) {
  TALON_TRY(used, local_images_in_use(config.run_dir));
  const std::string path = config.data_dir + "/talon.db";
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return used;
  }
  TALON_TRY(db, store::Db::open(path, store::Db::Mode::reader));
  TALON_TRY(more, store::images_in_use(*db));
  used.insert(used.end(), more.begin(), more.end());
  return used;
}

// The frame of all four: configuration, image store, work, one line on failure.
template <class Work>
int with_images(const Invocation& invocation, Work work) {
  const auto config = config_of(invocation);
  if (!config) {
    return failed(config.error(), kUsage);
  }
  if (const auto root = need_root("image"); !root) {
    return failed(root.error());
  }
  auto images = open_images(*config);
  if (!images) {
    return failed(images.error());
  }
  if (const auto done = work(*images, *config); !done) {
    return failed(done.error());
  }
  return std::fflush(stdout) == 0 ? 0 : kFailed;
}

}  // namespace

int image_list(const Invocation& invocation) {
  return with_images(invocation, [&](ImageStore& images, const Config&) -> Result<> {
    TALON_TRY(all, images.list());
    if (invocation.json) {
      const std::string text = as_json(all);
      std::fwrite(text.data(), 1, text.size(), stdout);
      return {};
    }
    std::printf("%-24s %10s %-7s %10s %s\n", "NAME", "GENERATION", "KIND", "FILES", "CREATED");
    for (const ImageInfo& info : all) {
      std::printf("%-24s %10u %-7s %10llu %s\n", info.name.c_str(), info.generation,
                  info.kind.c_str(), static_cast<unsigned long long>(info.files),
                  info.created_at.c_str());
    }
    return {};
  });
}

int image_import(const Invocation& invocation) {
  return with_images(invocation, [&](ImageStore& images, const Config&) -> Result<> {
    TALON_TRY(info,
              images.import(invocation.name, invocation.path, show_progress(invocation.name)));
    print_made(info);
    return {};
  });
}

int image_remove(const Invocation& invocation) {
  return with_images(invocation, [&](ImageStore& images, const Config& config) -> Result<> {
    TALON_TRY(used, used_images(config));
    return images.remove(invocation.name, used);
  });
}

int image_refresh(const Invocation& invocation) {
  return with_images(invocation, [&](ImageStore& images, const Config&) -> Result<> {
    if (invocation.name != "host") {
      return fail(Code::invalid_request, "only the image host can be refreshed; import \"" +
                                             invocation.name + "\" again instead");
    }
    TALON_TRY(info, images.ensure_host(true, show_progress("host")));
    print_made(info);
    return {};
  });
}

}  // namespace talon::cli
