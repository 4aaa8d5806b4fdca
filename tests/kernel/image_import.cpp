// IM-04 and its kin: what an archive or a directory may hold, and that nothing of it reaches
// beyond the new tree. A canary file and directory stand outside in every hostile case.
#include <archive.h>
#include <archive_entry.h>
#include <sys/xattr.h>

#include <catch2/catch.hpp>

#include "image_support.h"
#include "isolate/image/image.h"

using namespace talon;
using namespace talon::isolate;
using namespace talon::test;

namespace {

bool root_here() {
  if (geteuid() != 0) {
    WARN("SKIP: needs root (owners, devices, trusted xattrs)");
    return false;
  }
  return true;
}

struct Fixture {
  TempDir tmp;
  std::string data = tmp / "data";
  std::string canary_dir = tmp / "canary";
  std::string canary = tmp / "canary/file";
  ImageStore store = [this] {
    make_dir(canary_dir);
    put(canary, "tweet");
    auto opened = ImageStore::open(data);
    REQUIRE(opened);
    return std::move(*opened);
  }();

  std::string archive(const std::string& bytes, const char* name = "a.tar") {
    put(tmp / name, bytes);
    return tmp / name;
  }
  ImageStore::Opened good(const std::string& bytes) {
    auto info = store.import("x", archive(bytes));
    INFO((info ? "" : info.error().message));
    REQUIRE(info);
    auto opened = store.get("x", info->generation);
    REQUIRE(opened);
    return std::move(*opened);
  }
  // The import fails, names `entry`, leaves no image, no leftover and the canaries as they were.
  Error bad(const std::string& bytes, const std::string& entry) {
    auto info = store.import("x", archive(bytes));
    REQUIRE_FALSE(info);
    CHECK_THAT(info.error().message, Catch::Contains(entry));
    untouched();
    for (const std::string& name : names(data + "/images")) {
      CHECK(name == ".lock");
    }
    return info.error();
  }
  void untouched() {
    CHECK(slurp(canary) == "tweet");
    CHECK(names(canary_dir) == std::vector<std::string>{"file"});
    struct stat st = look(AT_FDCWD, canary);
    CHECK(st.st_nlink == 1);
    CHECK((st.st_mode & 07777) == 0644);
  }
};

std::string compressed(const std::string& bytes, bool zstd) {
  archive* a = archive_write_new();
  zstd ? archive_write_add_filter_zstd(a) : archive_write_add_filter_gzip(a);
  archive_write_set_format_raw(a);
  std::string out(bytes.size() + 65536, '\0');
  std::size_t used = 0;
  archive_write_set_bytes_in_last_block(a, 1);
  archive_write_open_memory(a, out.data(), out.size(), &used);
  archive_entry* e = archive_entry_new();
  archive_entry_set_filetype(e, 0100000);
  archive_write_header(a, e);
  archive_write_data(a, bytes.data(), bytes.size());
  archive_entry_free(e);
  archive_write_close(a);
  archive_write_free(a);
  out.resize(used);
  return out;
}

}  // namespace

TEST_CASE("image import: files, modes, owners, links and times of a tar", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  Tar tar;
  tar.dir("./", 0755).dir("bin", 0751).file("bin/tool", "#!/bin/sh\n", 04755);
  tar.add({.name = "etc/conf", .data = "x=1\n", .mode = 0640, .uid = 5, .gid = 50});
  tar.symlink("bin/alias", "tool").hard("bin/again", "bin/tool");
  tar.file("n\xc3\xa4me", "utf8").file("b\xff\xfe", "bytes").file(".wh.gone", "");
  std::string bytes = tar.whole();
  std::string form = GENERATE("plain", "gzip", "zstd");
  if (form != "plain") {
    bytes = compressed(bytes, form == "zstd");
  }
  CAPTURE(form);
  auto image = f.good(bytes);
  const int root = image.root.get();
  CHECK(image.info.kind == "import");
  CHECK(image.info.files == 7);
  CHECK(image.info.bytes == 23);
  CHECK(slurp(root, "bin/tool") == "#!/bin/sh\n");
  CHECK((look(root, "bin/tool").st_mode & 07777) == 04755);
  CHECK(look(root, "bin/tool").st_mtime == 1'700'000'000);
  CHECK(look(root, "bin/tool").st_ino == look(root, "bin/again").st_ino);
  CHECK((look(root, "bin").st_mode & 07777) == 0751);
  CHECK(look(root, "etc/conf").st_uid == 5);
  CHECK(look(root, "etc/conf").st_gid == 50);
  CHECK((look(root, "etc/conf").st_mode & 07777) == 0640);
  CHECK(link_target(root, "bin/alias") == "tool");
  CHECK(slurp(root, "n\xc3\xa4me") == "utf8");
  CHECK(slurp(root, "b\xff\xfe") == "bytes");
  CHECK(S_ISREG(look(root, ".wh.gone").st_mode));  // whiteouts are not interpreted
  for (const char* point : {"dev", "proc", "sys", "tmp", "workspace"}) {
    CHECK(S_ISDIR(look(root, point).st_mode));
  }
  CHECK((look(root, "tmp").st_mode & 07777) == 01777);
}

TEST_CASE("image import: the root as anything but a directory is refused", "[image]") {
  if (!root_here()) {
    return;
  }
  const std::string name = GENERATE(".", "/", "./", "//.", "");
  CAPTURE(name);
  Fixture f;
  if (!name.empty()) {
    f.bad(Tar{}.symlink(name, f.canary_dir).file("file", "evil").whole(), "entry " + name);
    f.bad(Tar{}.hard(name, f.canary).whole(), "entry " + name);
    f.bad(Tar{}.add({.name = name, .type = '6'}).whole(), "entry " + name);
  }
  f.bad(Tar{}.file(name, "evil").whole(), name.empty() ? "" : "entry " + name);
}

TEST_CASE("image import: a name that goes up is refused", "[image]") {
  if (!root_here()) {
    return;
  }
  const std::string name = GENERATE("../canary/file", "a/../../canary/file", "..", "a/..", "/../x");
  Fixture f;
  f.bad(Tar{}.dir("a").file(name, "evil").whole(), "entry " + name);
  f.bad(Tar{}.dir("a").symlink(name, "/").whole(), "entry " + name);
  f.bad(Tar{}.dir("a").dir(name).whole(), "entry " + name);
}

TEST_CASE("image import: absolute names are taken relative to the tree", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  auto image = f.good(Tar{}.file(f.canary, "evil").file("//etc//./motd", "hi").whole());
  CHECK(slurp(image.root.get(), f.canary.substr(1)) == "evil");
  CHECK(slurp(image.root.get(), "etc/motd") == "hi");
  f.untouched();
}

TEST_CASE("image import: a symlink on the way stays inside or is refused", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  f.bad(Tar{}.symlink("out", f.canary_dir).file("out/file", "evil").whole(), "entry out/file");
  f.bad(Tar{}.symlink("out", f.canary_dir).dir("out/d").whole(), "entry out/d");
  f.bad(Tar{}.symlink("o", f.tmp.path()).symlink("p", "o").file("p/canary/new", "evil").whole(),
        "entry p/canary/new");
  f.bad(Tar{}.symlink("up", "../../../../../../.." + f.canary_dir).file("up/x", "e").whole(),
        "entry up/x");
  f.bad(Tar{}.symlink("loop", "loop").file("loop/x", "e").whole(), "entry loop/x");
  f.bad(Tar{}.symlink("self", "/proc/self/root").file("self/tmp/x", "e").whole(), "entry self");
  f.bad(Tar{}.file("f", "1").file("f/x", "e").whole(), "entry f/x");

  Tar inside;
  inside.dir("usr/lib").symlink("lib", "usr/lib").symlink("abs", "/usr/lib");
  inside.symlink("climb", "../../../usr/lib");
  inside.file("lib/a", "1").file("abs/b", "2").file("climb/c", "3");
  auto image = f.good(inside.whole());
  CHECK(slurp(image.root.get(), "usr/lib/a") == "1");
  CHECK(slurp(image.root.get(), "usr/lib/b") == "2");
  CHECK(slurp(image.root.get(), "usr/lib/c") == "3");
}

TEST_CASE("image import: a later entry replaces a link and never writes through it", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  Tar tar;
  tar.symlink("l", f.canary).file("l", "evil");
  tar.symlink("m", f.canary).hard("n", "m").file("n", "evil", 04777);
  tar.symlink("d", f.canary_dir).dir("d", 0700).file("d/file", "evil");
  // An empty directory that becomes a link while it is the directory last written to.
  tar.dir("e/sub").symlink("e/sub", f.canary_dir).dir("e/other");
  auto image = f.good(tar.whole());
  f.untouched();
  const int root = image.root.get();
  CHECK(slurp(root, "l") == "evil");
  CHECK(slurp(root, "n") == "evil");
  CHECK(link_target(root, "m") == f.canary);
  CHECK(S_ISDIR(look(root, "d").st_mode));
  CHECK(link_target(root, "e/sub") == f.canary_dir);
  f.store.remove("x", {}).value();
  f.bad(Tar{}.dir("e").dir("e/sub").symlink("e/sub", f.canary_dir).file("e/sub/x", "").whole(),
        "entry e/sub/x");
  f.bad(Tar{}.file("full/x", "").symlink("full", "/").whole(), "entry full");
}

TEST_CASE("image import: hard links are confined", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  f.bad(Tar{}.hard("h", f.canary).whole(), "entry h");
  f.bad(Tar{}.hard("h", "../../../.." + f.canary).whole(), "entry h");
  f.bad(Tar{}.symlink("out", f.canary_dir).hard("h", "out/file").whole(), "entry h");
  f.bad(Tar{}.symlink("out", f.tmp.path()).hard("h", "out/canary/file").whole(), "entry h");
  f.bad(Tar{}.hard("h", "/").whole(), "entry h");
  f.bad(Tar{}.dir("d").hard("h", "d").whole(), "entry h");
}

TEST_CASE("image import: devices, FIFOs and unwanted xattrs are dropped and counted", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  Tar tar;
  tar.add({.name = "null", .type = '3', .mode = 0666}).add({.name = "blk", .type = '4'});
  tar.add({.name = "fifo", .type = '6'}).dir("kept");
  const std::string cap{
      "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
      "\x00\x00",
      20};
  tar.add({.name = "f",
           .data = "x",
           .pax = {{"SCHILY.xattr.trusted.overlay.opaque", "y"},
                   {"SCHILY.xattr.trusted.secret", "y"},
                   {"SCHILY.xattr.user.overlay.redirect", "/"},
                   {"SCHILY.xattr.security.capability", cap},
                   {"SCHILY.xattr.user.kept", "yes"}}});
  auto image = f.good(tar.whole());
  const int root = image.root.get();
  CHECK_FALSE(exists(root, "null"));
  CHECK_FALSE(exists(root, "blk"));
  CHECK_FALSE(exists(root, "fifo"));
  const int fd = openat(root, "f", O_RDONLY | O_CLOEXEC);
  char value[64] = {};
  CHECK(fgetxattr(fd, "user.kept", value, sizeof value) == 3);
  CHECK(std::string{value} == "yes");
  CHECK(fgetxattr(fd, "security.capability", value, sizeof value) == 20);
  CHECK(fgetxattr(fd, "trusted.overlay.opaque", value, sizeof value) == -1);
  CHECK(fgetxattr(fd, "trusted.secret", value, sizeof value) == -1);
  CHECK(fgetxattr(fd, "user.overlay.redirect", value, sizeof value) == -1);
  close(fd);
  const std::string manifest = slurp(f.data + "/images/x-1/manifest.json");
  CHECK_THAT(manifest, Catch::Contains("\"left_out_special\": 3"));
  CHECK_THAT(manifest, Catch::Contains("\"left_out_xattrs\": 3"));
}

TEST_CASE("image import: ids above 65535 become nobody's", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  Tar tar;
  tar.add({.name = "edge", .uid = 65535, .gid = 65535});
  tar.add({.name = "over", .uid = 65536, .gid = 1'000'000});
  tar.add({.name = "pax", .pax = {{"uid", "1000000000"}, {"gid", "-5"}}});
  auto image = f.good(tar.whole());
  const int root = image.root.get();
  CHECK(look(root, "edge").st_uid == 65535);
  CHECK(look(root, "edge").st_gid == 65535);
  CHECK(look(root, "over").st_uid == 65534);
  CHECK(look(root, "over").st_gid == 65534);
  CHECK(look(root, "pax").st_uid == 65534);
  CHECK(look(root, "pax").st_gid == 65534);
}

TEST_CASE("image import: a cut archive is no image", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  Tar tar;
  tar.file("a", std::string(600, 'a')).file("b", std::string(512, 'b'));
  const std::string cut = tar.cut();
  f.bad(cut, "cut short");
  f.bad(cut.substr(0, cut.size() - 100), "entry b");
  f.bad(cut.substr(0, 512 + 1024), "cut short");  // between two entries
  f.bad(cut.substr(0, 300), "not a tar");
  const std::string whole = tar.whole();
  for (const bool zstd : {false, true}) {
    std::string random(200'000, '\0');
    unsigned state = 1;
    for (char& c : random) {
      state = state * 1664525 + 1013904223;
      c = static_cast<char>(state >> 24);
    }
    std::string packed = compressed(Tar{}.file("r", random).whole(), zstd);
    f.bad(packed.substr(0, packed.size() / 2), zstd ? "zstd" : "entry r");
    f.bad(packed.substr(0, packed.size() - 30), "");
  }
  f.bad("this is no archive at all, but long enough to be looked at", "not a tar");
  f.bad("", "not a tar");
}

TEST_CASE("image import: what cannot fit on the disk is refused before it is written", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  Tar huge;
  huge.add({.name = "huge", .data = "x", .claimed_size = 0777777777777});  // 64 GiB - 1
  huge.add({.name = "huge2", .data = "x", .pax = {{"size", "4611686018427387904"}}});
  f.bad(huge.cut(), "entry huge");
  Tar sparse;  // GNU.sparse 0.1: a map that claims 4 EiB of hole
  sparse.add({.name = "sparse",
              .data = "data",
              .pax = {{"GNU.sparse.size", "4611686018427387904"},
                      {"GNU.sparse.numblocks", "1"},
                      {"GNU.sparse.map", "4611686018427387000,4"}}});
  const Error error = f.bad(sparse.whole(), "entry sparse");
  CHECK(error.code == Code::disk_full);
}

TEST_CASE("image import: a mount point that is a link or a file is named", "[image]") {
  if (!root_here()) {
    return;
  }
  const std::string name = GENERATE("dev", "proc", "sys", "tmp", "workspace");
  Fixture f;
  CHECK(f.bad(Tar{}.symlink(name, f.canary_dir).whole(), "/" + name).code == Code::invalid_request);
  f.bad(Tar{}.file(name, "").whole(), "/" + name);
}

TEST_CASE("image import: a directory", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  const std::string src = f.tmp / "src";
  make_dir(src);
  make_dir(src + "/etc", 0711);
  put(src + "/etc/a", "one", 02640);
  REQUIRE(chown((src + "/etc/a").c_str(), 70'000, 12) == 0);
  chmod((src + "/etc/a").c_str(), 02640);
  REQUIRE(link((src + "/etc/a").c_str(), (src + "/b").c_str()) == 0);
  REQUIRE(symlink(f.canary.c_str(), (src + "/link").c_str()) == 0);
  REQUIRE(mkfifo((src + "/fifo").c_str(), 0666) == 0);
  REQUIRE(setxattr((src + "/b").c_str(), "trusted.x", "y", 1, 0) == 0);
  REQUIRE(truncate((src + "/hole").c_str(), 0) != 0);
  put(src + "/hole", "");
  REQUIRE(truncate((src + "/hole").c_str(), 100 << 20) == 0);
  auto info = f.store.import("tree", src);
  REQUIRE(info);
  auto image = f.store.get("tree");
  REQUIRE(image);
  const int root = image->root.get();
  CHECK(slurp(root, "etc/a") == "one");
  CHECK(look(root, "etc/a").st_uid == 65534);
  CHECK(look(root, "etc/a").st_gid == 12);
  CHECK((look(root, "etc/a").st_mode & 07777) == 02640);
  CHECK((look(root, "etc").st_mode & 07777) == 0711);
  CHECK(look(root, "b").st_ino == look(root, "etc/a").st_ino);
  CHECK(look(root, "b").st_ino != look(AT_FDCWD, src + "/b").st_ino);  // never linked to its source
  CHECK(link_target(root, "link") == f.canary);
  CHECK_FALSE(exists(root, "fifo"));
  CHECK(look(root, "hole").st_size == 100 << 20);
  CHECK(look(root, "hole").st_blocks == 0);
  const int fd = openat(root, "b", O_RDONLY | O_CLOEXEC);
  char value[8];
  CHECK(fgetxattr(fd, "trusted.x", value, sizeof value) == -1);
  close(fd);
  CHECK(S_ISDIR(look(root, "workspace").st_mode));
  f.untouched();
}

TEST_CASE("image import: the data directory in what is imported does not recurse", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  auto info = f.store.import("whole", f.tmp.path());
  REQUIRE(info);
  CHECK(info->files < 10);
}

TEST_CASE("image import: bad names and paths", "[image]") {
  if (!root_here()) {
    return;
  }
  Fixture f;
  const std::string tar = f.archive(Tar{}.file("a", "1").whole());
  for (const std::string name : {"", "A", "a/b", "..", ".a", "-a", "a b", "host"}) {
    auto r = f.store.import(name, tar);
    REQUIRE_FALSE(r);
    CHECK(r.error().code == Code::invalid_request);
    CHECK(r.error().field == "image");
  }
  REQUIRE(mkfifo((f.tmp / "pipe").c_str(), 0600) == 0);
  for (const std::string& path : {f.tmp / "none", f.tmp / "pipe", std::string{"/dev/null"}}) {
    auto r = f.store.import("x", path);
    REQUIRE_FALSE(r);
    CHECK(r.error().field == "path");
    CHECK_THAT(r.error().message, Catch::Contains(path));
  }
}
