#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "isolate/image/host.h"
#include "isolate/image/image.h"
#include "isolate/image/maker.h"
#include "isolate/image/manifest.h"
#include "isolate/image/tree.h"

namespace talon::isolate {

namespace {

constexpr std::string_view kHost = "host";

bool name_char(char c, bool first) {
  const bool alnum = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  return alnum || (!first && (c == '.' || c == '_' || c == '-'));
}

Result<image::Manifest> read_manifest(int images, const std::string& dir) {
  TALON_TRY(fd, image::open_subdir(images, dir));
  auto text = read_file_at(fd.get(), "manifest.json", 64 << 10);
  if (!text) {
    return std::unexpected(std::move(text).error().in("image " + dir));
  }
  auto manifest = image::parse_manifest(*text);
  if (!manifest) {
    return std::unexpected(std::move(manifest).error().in("image " + dir));
  }
  std::string name;
  std::uint32_t generation = 0;
  if (!image::split_dir_name(dir, name, generation) || name != manifest->info.name ||
      generation != manifest->info.generation) {
    return fail(Code::internal, "image " + dir + ": its manifest names another image");
  }
  return manifest;
}

Result<UniqueFd> open_images(const std::string& path) {
  return open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
}

Result<> make_private_dir(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_sys(errno, "make " + path);
  }
  struct stat st;
  if (stat(path.c_str(), &st) != 0) {
    return fail_sys(errno, path);
  }
  if (!S_ISDIR(st.st_mode)) {
    return fail_sys(ENOTDIR, path);
  }
  return {};
}

std::string method(const image::TreeCounts& c) {
  if (c.linked >= c.reflinked && c.linked >= c.copied) {
    return "hardlink";
  }
  return c.reflinked >= c.copied ? "reflink" : "copy";
}

image::Manifest host_manifest(const image::HostTree& tree) {
  image::Manifest m;
  m.info.name = kHost;
  m.info.kind = "host";
  m.info.source = "/usr, /etc by an allowlist, /var/lib/dpkg";
  m.info.files = tree.usr.files + tree.usr.symlinks + tree.dpkg.files + tree.dpkg.symlinks +
                 tree.etc.files + tree.etc.symlinks;
  m.info.bytes = tree.usr.bytes + tree.dpkg.bytes + tree.etc.bytes;
  m.method = method(tree.usr);
  m.counts = {{"usr_linked", tree.usr.linked},
              {"usr_reflinked", tree.usr.reflinked},
              {"usr_copied", tree.usr.copied},
              {"left_out_unreadable", tree.usr.unreadable + tree.dpkg.unreadable},
              {"left_out_special", tree.usr.special},
              {"left_out_mounts", tree.usr.mounts},
              {"left_out_etc", tree.etc.left_out}};
  return m;
}

}  // namespace

Result<> check_image_name(std::string_view name) {
  bool good = !name.empty() && name.size() <= 64;
  for (std::size_t i = 0; good && i < name.size(); ++i) {
    good = name_char(name[i], i == 0);
  }
  if (!good) {
    return bad_field("image",
                     "an image name is 1 to 64 of a-z 0-9 . _ - and starts with a letter "
                     "or digit");
  }
  return {};
}

Result<ImageStore> ImageStore::open(const std::string& data_dir) {
  TALON_CHECK(make_private_dir(data_dir));
  std::string path = data_dir + "/images";
  TALON_CHECK(make_private_dir(path));
  // Whoever may write here chooses what sandboxes run; whoever may search it reaches hard links
  // of host files by a second way.
  struct stat st;
  if (stat(path.c_str(), &st) != 0) {
    return fail_sys(errno, path);
  }
  if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Code::io, path +
                              " must belong to the user that runs talond and be writable only "
                              "by it (chmod 0700)");
  }
  return ImageStore{std::move(path)};
}

Result<std::vector<ImageInfo>> ImageStore::list() const {
  TALON_TRY(images, open_images(path_));
  TALON_TRY(entries, image::list_dir(images.get()));
  std::vector<ImageInfo> found;
  for (const image::Entry& e : entries) {
    ImageInfo info;
    if (!image::split_dir_name(e.name, info.name, info.generation)) {
      continue;
    }
    if (auto manifest = read_manifest(images.get(), e.name)) {
      info = manifest->info;
    } else {
      info.kind = "broken";
      info.source = manifest.error().message;
    }
    found.push_back(std::move(info));
  }
  std::ranges::sort(found, {}, [](const ImageInfo& i) { return std::pair{i.name, i.generation}; });
  return found;
}

Result<ImageStore::Opened> ImageStore::get(std::string_view name) const {
  TALON_CHECK(check_image_name(name));
  TALON_TRY(images, open_images(path_));
  TALON_TRY(found, image::generations(images.get(), name));
  return get(name, found.empty() ? 0 : found.back());
}

Result<ImageStore::Opened> ImageStore::get(std::string_view name, std::uint32_t generation) const {
  TALON_CHECK(check_image_name(name));
  TALON_TRY(images, open_images(path_));
  const std::string dir = std::string{name} + "-" + std::to_string(generation);
  auto manifest = read_manifest(images.get(), dir);
  if (!manifest && manifest.error().sys == ENOENT) {
    TALON_TRY(all, list());
    std::string names;
    std::string last;  // sorted by name: the generations of one follow each other
    for (const ImageInfo& i : all) {
      // An image is asked for by its name; only a sandbox asks for a generation.
      const std::string one =
          generation == 0 ? i.name : i.name + "-" + std::to_string(i.generation);
      if (one != last) {
        names += (names.empty() ? "" : ", ") + one;
        last = one;
      }
    }
    const std::string wanted = generation == 0 ? std::string{name} : dir;
    return fail(Code::not_found, "no image " + wanted +
                                     (names.empty() ? "; there is none" : "; there are " + names));
  }
  if (!manifest) {
    return std::unexpected(std::move(manifest).error());
  }
  auto root = open_at(images.get(), dir + "/root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!root) {
    return std::unexpected(std::move(root).error().in("image " + dir));
  }
  return Opened{std::move(*root), std::move(manifest->info)};
}

Result<ImageInfo> ImageStore::ensure_host(bool refresh, const ImageProgress& progress) {
  if (!refresh) {
    if (auto have = get(kHost)) {
      return have->info;
    }
  }
  TALON_TRY(images, open_images(path_));
  TALON_TRY(lock, image::lock_file(images.get(), ".lock-host"));
  if (!refresh) {  // another maker may have made it while this one waited
    auto have = get(kHost);
    if (have) {
      return have->info;
    }
    if (have.error().code != Code::not_found) {
      return std::unexpected(std::move(have).error());
    }
  }
  TALON_TRY(maker, image::Maker::begin(path_));
  TALON_TRY(root, open_at(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY));
  auto tree = image::make_host_tree(root.get(), maker.root(), progress);
  if (!tree) {
    return std::unexpected(std::move(tree).error().in("make image host"));
  }
  TALON_TRY(info, maker.publish(host_manifest(*tree)));
  if (progress) {
    progress(info.files, "done");
  }
  return info;
}

Result<> ImageStore::remove(std::string_view name, const std::vector<std::string>& in_use) {
  TALON_CHECK(check_image_name(name));
  TALON_TRY(images, open_images(path_));
  TALON_TRY(found, image::generations(images.get(), name));
  if (found.empty()) {
    return fail(Code::not_found, "no image " + std::string{name});
  }
  std::string kept;
  bool removed = false;
  for (const std::uint32_t generation : found) {
    const std::string dir = std::string{name} + "-" + std::to_string(generation);
    if (std::ranges::find(in_use, dir) != in_use.end()) {
      kept += (kept.empty() ? "" : ", ") + dir;
      continue;
    }
    TALON_CHECK(image::discard(images.get(), dir));
    removed = true;
  }
  if (!removed) {
    return fail(Code::busy, "sandboxes use " + kept);
  }
  return {};
}

}  // namespace talon::isolate
