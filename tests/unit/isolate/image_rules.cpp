#include <catch2/catch.hpp>

#include "isolate/image/etc.h"
#include "isolate/image/image.h"
#include "isolate/image/maker.h"
#include "isolate/image/manifest.h"
#include "isolate/image/unpack.h"

using namespace talon;
using namespace talon::isolate;

TEST_CASE("image names") {
  for (const char* good : {"a", "0", "host", "debian-12", "a.b_c-d", "node20.1"}) {
    CHECK(check_image_name(good));
  }
  CHECK(check_image_name(std::string(64, 'a')));
  for (const std::string& bad :
       {std::string{}, std::string{"A"}, std::string{".a"}, std::string{"-a"}, std::string{"a/b"},
        std::string{"a b"}, std::string{"a\0b", 3}, std::string(65, 'a')}) {
    REQUIRE_FALSE(check_image_name(bad));
    CHECK(check_image_name(bad).error().field == "image");
  }
}

TEST_CASE("image directory names are split at the last dash") {
  std::string name;
  std::uint32_t generation = 0;
  CHECK(image::split_dir_name("a-1-20", name, generation));
  CHECK(name == "a-1");
  CHECK(generation == 20);
  for (const char* bad :
       {"a", "a-", "-1", "a-0", "a-01", "a-x", "a-1x", "a--1", ".tmp-12", "a-99999999999"}) {
    CAPTURE(bad);
    const bool split = image::split_dir_name(bad, name, generation);
    CHECK((!split || (name == "a-" && generation == 1)));
  }
}

TEST_CASE("/etc: the allowlist") {
  using image::etc_allowed;
  for (const char* yes : {"alternatives",
                          "alternatives/java",
                          "ssl",
                          "ssl/certs",
                          "ssl/certs/x.pem",
                          "ssl/openssl.cnf",
                          "ca-certificates.conf",
                          "ca-certificates/update.d",
                          "ld.so.cache",
                          "ld.so.conf.d/a.conf",
                          "python3.11/x",
                          "java-17-openjdk/security/java.security",
                          "apt",
                          "apt/sources.list",
                          "apt/apt.conf.d/a",
                          "locale.gen",
                          "profile",
                          "profile.d/a.sh",
                          "terminfo",
                          "inputrc",
                          "bash.bashrc"}) {
    CAPTURE(yes);
    CHECK(etc_allowed(yes));
  }
  for (const char* no : {"shadow",
                         "shadow-",
                         "gshadow",
                         "passwd",
                         "sudoers",
                         "sudoers.d/x",
                         "ssh",
                         "ssh/ssh_config",
                         "machine-id",
                         "ssl/private",
                         "ssl/private/a",
                         "ssl/certs/a.key",
                         "ssl/certs/private/a",
                         "apt/auth.conf",
                         "apt/auth.conf.d/x",
                         "pip.conf",
                         "npmrc",
                         "gitconfig",
                         "docker",
                         "fstab",
                         "environment",
                         "profile~",
                         "skel/.ssh/id_rsa",
                         "skel/.netrc",
                         "",
                         "hosts",
                         "NetworkManager",
                         "wireguard",
                         "letsencrypt",
                         "kubernetes",
                         "crypttab",
                         "java-17-openjdk/management/jmxremote.password",
                         "security/opasswd"}) {
    CAPTURE(no);
    CHECK_FALSE(etc_allowed(no));
  }
}

TEST_CASE("/etc: credentials in URLs") {
  using image::has_url_credentials;
  for (const char* yes : {"http://u:p@h/", "x https://token@h", "# deb ftp://a:b@c d",
                          "\"http://u:p@proxy:3128\";", "http://h/ http://u:p@h"}) {
    CAPTURE(yes);
    CHECK(has_url_credentials(yes));
  }
  for (const char* no : {"", "://", "http://h/a@b", "http://h?x=a@b", "me@example.org",
                         "http://@h/", "see http://h, or write to a@b", "https://"}) {
    CAPTURE(no);
    CHECK_FALSE(has_url_credentials(no));
  }
}

TEST_CASE("/etc: what is cut out of a file") {
  using image::filter_etc_file;
  CHECK(filter_etc_file("apt/sources.list.d/a.list", "a\ndeb http://u:p@h x\nb").text == "a\nb");
  CHECK(filter_etc_file("apt/sources.list.d/a.sources", "A: 1\nU: http://u:p@h\n\nB: 2\n").text ==
        "B: 2\n");
  CHECK_FALSE(filter_etc_file("apt/sources.list.d/a.disabled", "deb http://u:p@h x\n").keep);
  CHECK_FALSE(filter_etc_file("apt/apt.conf.d/a", "Proxy \"http://u:p@h\";").keep);
  CHECK_FALSE(filter_etc_file("ssl/certs/a.pem", "-----BEGIN EC PRIVATE KEY-----").keep);
  CHECK_FALSE(filter_etc_file("profile.d/a.sh", "export Git_Token=abc").keep);
  CHECK_FALSE(filter_etc_file("profile", "AWS_SECRET_ACCESS_KEY=abc").keep);
  CHECK(filter_etc_file("profile", "# passwords are not set here\n").keep);
  CHECK(filter_etc_file("services", "token=1").keep);
  CHECK(filter_etc_file("mime.types", "").keep);
}

TEST_CASE("/etc: accounts") {
  const std::string passwd = image::passwd_text("/bin/sh");
  CHECK(passwd.starts_with("root:*:0:0:root:/root:/bin/sh\n"));
  CHECK(passwd.find(":x:") == std::string::npos);  // there is no shadow file
  CHECK(image::group_text().find("nogroup:*:65534:\n") != std::string::npos);
  CHECK(image::filter_statoverride("root mail 2755 /a b\nroot postdrop 2 /c\nx root 1 /d\n\nbad") ==
        "root mail 2755 /a b\n");
}

TEST_CASE("manifest: what is written is read") {
  image::Manifest m;
  m.info = {.name = "img-1",
            .generation = 4'000'000'000,
            .kind = "import",
            .source = "/tmp/a \"b\"\\\n\xc3\xa4\xff",
            .created_at = "2026-01-31T12:34:56.789Z",
            .files = 12,
            .bytes = 18'446'744'073'709'551'615u};
  m.method = "unpack";
  m.counts = {{"left_out_special", 3}};
  const auto back = image::parse_manifest(to_json(m));
  REQUIRE(back);
  CHECK(back->info.name == "img-1");
  CHECK(back->info.generation == 4'000'000'000);
  CHECK(back->info.kind == "import");
  CHECK(back->info.source ==
        "/tmp/a \"b\"\\\n\xc3\xa4\xc3\xbf");  // a byte that was no UTF-8: U+00FF
  CHECK(back->info.created_at == m.info.created_at);
  CHECK(back->info.files == 12);
  CHECK(back->info.bytes == m.info.bytes);
  CHECK(back->counts == m.counts);
}

TEST_CASE("manifest: bad text") {
  const std::string good = R"({"name": "a", "kind": "b", "generation": 1})";
  CHECK(image::parse_manifest(good));
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    CHECK_FALSE(image::parse_manifest(good.substr(0, cut)));
  }
  for (const char* bad :
       {"{}", "[]", R"({"name": "a", "kind": "b", "generation": 0})",
        R"({"name": "a", "kind": "b", "generation": -1})",
        R"({"name": "a", "kind": "b", "generation": 1} x)", R"({"name": "a" "kind": "b"})",
        R"({"name": "a\x"})", R"({"name": "a", "kind": "b", "generation": 4294967296})",
        R"({"name": "\u20ac", "kind": "b", "generation": 1})",
        R"({"name": "a", "kind": "b", "generation": 1, })"}) {
    CAPTURE(bad);
    CHECK_FALSE(image::parse_manifest(bad));
  }
}

TEST_CASE("archive names") {
  using image::clean_path;
  CHECK(clean_path("/a/./b//c/").value() == "a/b/c");
  CHECK(clean_path("").value() == "");
  CHECK(clean_path("./").value() == "");
  CHECK(clean_path("...").value() == "...");
  for (const char* up : {"..", "a/..", "../a", "/../a", "a/../b", "./.."}) {
    CHECK(clean_path(up).error().code == Code::invalid_request);
  }
  CHECK_FALSE(clean_path(std::string(256, 'a')));
  CHECK(clean_path(std::string(255, 'a')));
  std::string deep;
  for (int i = 0; i < 257; ++i) {
    deep += "a/";
  }
  CHECK(clean_path(deep).error().code == Code::too_large);
}

TEST_CASE("ids and attributes that an image may not hold") {
  CHECK(image::squash_id(0) == 0);
  CHECK(image::squash_id(65535) == 65535);
  CHECK(image::squash_id(65536) == 65534);
  CHECK(image::squash_id(~0ull) == 65534);
  CHECK(image::xattr_allowed("user.x"));
  CHECK(image::xattr_allowed("security.capability"));
  CHECK_FALSE(image::xattr_allowed("user.overlay.opaque"));
  CHECK_FALSE(image::xattr_allowed("trusted.overlay.opaque"));
  CHECK_FALSE(image::xattr_allowed("trusted.x"));
  CHECK_FALSE(image::xattr_allowed("security.selinux"));
  CHECK_FALSE(image::xattr_allowed("system.posix_acl_access"));
}
