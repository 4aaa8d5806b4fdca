#include "isolate/image/import.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <memory>

#include "isolate/image/maker.h"
#include "isolate/image/unpack.h"

namespace talon::isolate {

namespace image {

namespace {

constexpr const char* kNotTar = "not a tar archive (plain, gzip or zstd) that can be read";
constexpr std::size_t kReadBlock = 1 << 18;

std::string say(const char* text) { return text != nullptr ? text : "unreadable"; }

class Tar {
 public:
  Tar(int root, const ImageProgress& progress)
      : unpacker_(root), root_(root), progress_(progress), archive_(archive_read_new()) {}
  ~Tar() { archive_read_free(archive_); }
  Tar(const Tar&) = delete;
  Tar& operator=(const Tar&) = delete;

  Result<TreeCounts> run(int fd);

 private:
  Result<> entry(archive_entry* e, const std::string& path);
  Result<> regular(archive_entry* e, const std::string& path, const Attributes& a);
  Result<> data(int fd, std::int64_t size);
  Result<> xattrs(archive_entry* e, int fd);
  Result<> room(std::uint64_t bytes) const;
  Result<> check_end(std::int64_t after_data);
  Error read_error() const {
    return Error{.code = Code::invalid_request,
                 .sys = 0,
                 .message = say(archive_error_string(archive_)),
                 .field = "path"};
  }

  Unpacker unpacker_;
  int root_;
  const ImageProgress& progress_;
  archive* archive_;
  TreeCounts counts_;
};

// A free disk is the bound for what an archive may claim (a sparse file of 1 EB) and hold (a
// gzip of zeros): the import ends while there is still room for everyone else.
Result<> Tar::room(std::uint64_t bytes) const {
  struct statvfs fs;
  if (fstatvfs(root_, &fs) != 0) {
    return fail_sys(errno, "free space");
  }
  const std::uint64_t free = static_cast<std::uint64_t>(fs.f_bavail) * fs.f_frsize;
  if (free < kImportKeepFree || bytes > free - kImportKeepFree) {
    return fail(Code::disk_full, "needs " + std::to_string(bytes) + " bytes; " +
                                     std::to_string(free) + " are free and " +
                                     std::to_string(kImportKeepFree) + " stay so");
  }
  return {};
}

Result<> Tar::data(int fd, std::int64_t size) {
  std::uint64_t since_check = 0;
  for (;;) {
    const void* block = nullptr;
    std::size_t length = 0;
    la_int64_t offset = 0;
    const int r = archive_read_data_block(archive_, &block, &length, &offset);
    if (r == ARCHIVE_EOF) {
      break;
    }
    if (r != ARCHIVE_OK) {
      return std::unexpected(read_error());
    }
    if (offset < 0 || offset > size || static_cast<std::int64_t>(length) > size - offset) {
      return fail(Code::invalid_request, "its data goes beyond its size");
    }
    for (std::size_t done = 0; done < length;) {
      const ssize_t n = pwrite(fd, static_cast<const char*>(block) + done, length - done,
                               offset + static_cast<la_int64_t>(done));
      if (n < 0 && errno != EINTR) {
        return fail_sys(errno, "write");
      }
      done += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    since_check += length;
    if (since_check > (16u << 20)) {
      TALON_CHECK(room(0));
      since_check = 0;
    }
  }
  if (ftruncate(fd, size) != 0) {
    return fail_sys(errno, "set size");
  }
  return {};
}

Result<> Tar::xattrs(archive_entry* e, int fd) {
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  archive_entry_xattr_reset(e);
  while (archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK) {
    if (name == nullptr || !xattr_allowed(name)) {
      ++counts_.xattrs;
      continue;
    }
    if (fsetxattr(fd, name, value, size, 0) != 0) {
      return fail_sys(errno, std::string{"xattr "} + name);
    }
  }
  return {};
}

Result<> Tar::regular(archive_entry* e, const std::string& path, const Attributes& a) {
  const std::int64_t size = archive_entry_size(e);
  if (size < 0) {
    return fail(Code::invalid_request, "its size is negative");
  }
  TALON_CHECK(room(static_cast<std::uint64_t>(size)));
  TALON_TRY(fd, unpacker_.file(path));
  TALON_CHECK(data(fd.get(), size));
  TALON_CHECK(unpacker_.finish(fd.get(), a));
  TALON_CHECK(xattrs(e, fd.get()));  // after chown, which clears security.capability
  ++counts_.files;
  ++counts_.copied;
  counts_.bytes += static_cast<std::uint64_t>(size);
  return {};
}

Result<> Tar::entry(archive_entry* e, const std::string& path) {
  Attributes a;
  a.mode = archive_entry_perm(e) & 07777;
  a.uid = squash_id(static_cast<std::uint64_t>(archive_entry_uid(e)));
  a.gid = squash_id(static_cast<std::uint64_t>(archive_entry_gid(e)));
  a.mtime = archive_entry_mtime(e);
  a.mtime_ns = archive_entry_mtime_nsec(e);
  if (const char* target = archive_entry_hardlink(e); target != nullptr) {
    TALON_TRY(clean, clean_path(target));
    TALON_CHECK(unpacker_.hard_link(path, clean));
    ++counts_.files;
    ++counts_.linked;
    return {};
  }
  switch (archive_entry_filetype(e)) {
    case AE_IFREG: return regular(e, path, a);
    case AE_IFDIR: ++counts_.dirs; return unpacker_.directory(path, a);
    case AE_IFLNK: {
      const char* target = archive_entry_symlink(e);
      if (target == nullptr || *target == '\0') {
        return fail(Code::invalid_request, "a symlink without a target");
      }
      ++counts_.symlinks;
      return unpacker_.symlink(path, target, a);
    }
    default:
      if (path.empty()) {
        return fail(Code::invalid_request, "the root of the tree must be a directory");
      }
      ++counts_.special;  // devices, FIFOs, sockets
      return {};
  }
}

// A tar that was cut between two entries looks whole but for the two zero blocks at its end,
// which libarchive does not insist on. Behind the last entry's data come at most 511 bytes of
// padding, so less than a block consumed since means that the mark is not there.
Result<> Tar::check_end(std::int64_t after_data) {
  if (archive_filter_bytes(archive_, 0) - after_data < 512) {
    return fail(Code::invalid_request,
                "the archive is cut short: no end mark after its last entry");
  }
  return {};
}

Result<TreeCounts> Tar::run(int fd) {
  if (archive_ == nullptr) {
    return fail(Code::internal, "libarchive: no memory");
  }
  archive_read_support_filter_gzip(archive_);
  archive_read_support_filter_zstd(archive_);
  archive_read_support_format_tar(archive_);
  archive_read_support_format_gnutar(archive_);
  // Names are bytes: without this a name that is not in the locale's charset comes back as null.
  (void)archive_read_set_format_option(archive_, "tar", "hdrcharset", "BINARY");
  if (archive_read_open_fd(archive_, fd, kReadBlock) != ARCHIVE_OK) {
    return std::unexpected(read_error().in(kNotTar));
  }
  std::int64_t after_data = 0;
  std::string last;
  for (;;) {
    archive_entry* e = nullptr;
    const int r = archive_read_next_header(archive_, &e);
    if (r == ARCHIVE_EOF) {
      TALON_CHECK(check_end(after_data));
      return counts_;
    }
    const char* name = e != nullptr ? archive_entry_pathname(e) : nullptr;
    if (name == nullptr && e != nullptr) {
      name = archive_entry_pathname_utf8(e);
    }
    if (r != ARCHIVE_OK && r != ARCHIVE_WARN) {
      return std::unexpected(read_error().in(after_data == 0 ? kNotTar : "after entry " + last));
    }
    if (name == nullptr) {
      return fail(Code::invalid_request, "an entry without a name");
    }
    const std::string shown{name};
    auto path = clean_path(name);
    auto done = path ? entry(e, *path) : Result<>{std::unexpected(path.error())};
    if (!done) {
      return std::unexpected(std::move(done).error().in("entry " + shown));
    }
    if (archive_read_data_skip(archive_) < ARCHIVE_WARN) {
      return std::unexpected(read_error().in("entry " + shown));
    }
    after_data = archive_filter_bytes(archive_, 0);
    last = shown;
    const std::uint64_t seen = counts_.files + counts_.symlinks;
    if (progress_ && seen % 500 == 0) {
      progress_(seen, "unpack");
    }
  }
}

}  // namespace

Result<TreeCounts> unpack_tar(int fd, int root, const ImageProgress& progress) {
  Tar tar{root, progress};
  return tar.run(fd);
}

}  // namespace image

Result<ImageInfo> ImageStore::import(std::string_view name, const std::string& path,
                                     const ImageProgress& progress) {
  TALON_CHECK(check_image_name(name));
  if (name == "host") {
    return bad_field("image", "`host` is made from this machine; give the import another name");
  }
  // O_NONBLOCK: a FIFO must not hold the caller; it has no effect on files and directories.
  auto source = open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  struct stat st{};
  if (source && fstat(source->get(), &st) != 0) {
    return fail_sys(errno, path);
  }
  if (!source) {
    return bad_field("path", source.error().message);
  }
  if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) {
    return bad_field("path", path + " is neither a directory nor a file");
  }
  image::Manifest m;
  m.info.name = name;
  m.info.kind = "import";
  m.info.source = path;
  m.method = "unpack";
  TALON_TRY(maker, image::Maker::begin(path_));
  Result<image::TreeCounts> counts;
  if (S_ISDIR(st.st_mode)) {
    counts = image::mirror(source->get(), maker.root(),
                           {.squash_ids = true, .xattrs = true, .keep_links = true},
                           [&](const image::TreeCounts& c) {
                             if (progress) {
                               progress(c.files + c.symlinks, "copy");
                             }
                           });
    if (counts) {
      m.method = counts->reflinked > counts->copied ? "reflink" : "copy";
    }
  } else {
    counts = image::unpack_tar(source->get(), maker.root(), progress);
  }
  Result<> points = counts ? image::make_mount_points(maker.root()) : Result<>{};
  if (!counts || !points) {
    Error error = counts ? std::move(points).error() : std::move(counts).error();
    return std::unexpected(std::move(error).in("import " + path));
  }
  m.info.files = counts->files + counts->symlinks;
  m.info.bytes = counts->bytes;
  m.counts = {{"left_out_special", counts->special},
              {"left_out_mounts", counts->mounts},
              {"left_out_xattrs", counts->xattrs}};
  TALON_TRY(info, maker.publish(std::move(m)));
  if (progress) {
    progress(info.files, "done");
  }
  return info;
}

}  // namespace talon::isolate
