#include <catch2/catch.hpp>
#include <filesystem>

#include "tsb_support.h"

using namespace talon::test;

TEST_CASE("tsb speaks https with whom it can check, and with nobody else", "[e2e][tsb]") {
  const auto place = std::filesystem::temp_directory_path() / "talon-tsb-tls";
  std::filesystem::create_directories(place);
  const std::string cert = place / "cert.pem";
  const std::string key = place / "key.pem";
  RunProcess openssl({"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                      "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=talon-test",
                      "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert},
                     false);
  REQUIRE(openssl.finish(Seconds(60)).code == 0);
  Daemon::Options options;
  options.args = {"--tls-cert", cert, "--tls-key", key};
  options.image = false;
  {
    Daemon daemon(options);
    const std::string port = std::to_string(daemon.tcp().port);
    const std::string secret = "TALON_API_KEY=" + daemon.key();
    const Tsb tsb(Args{"TALON_URL=https://localhost:" + port, secret, "SSL_CERT_FILE=" + cert});
    const auto good = tsb({"list"});
    INFO(good.err);
    CHECK(good.code == 0);
    CHECK(good.out == "ID  NAME  STATE  IMAGE  AGE\n");
    // An authority that nobody trusts, and a name that the certificate does not have.
    const auto stranger = Tsb(Args{"TALON_URL=https://localhost:" + port, secret})({"list"});
    CHECK(stranger.code == 3);
    CHECK(stranger.err.find("certificate verify failed") != std::string::npos);
    const auto other =
        Tsb(Args{"TALON_URL=https://127.0.0.1:" + port, secret, "SSL_CERT_FILE=" + cert})({"list"});
    CHECK(other.code == 3);
    CHECK(other.err.starts_with("tsb: not_reachable: TLS with https://127.0.0.1:" + port));
  }
  std::filesystem::remove_all(place);
}
