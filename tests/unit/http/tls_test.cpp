// TLS with a certificate made here.

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <catch2/catch.hpp>

#include <cstdio>
#include <filesystem>

#include "unit/http/lab.h"

using namespace talon;
using namespace talon::test;

namespace {

struct Files {
  Files() {
    char name[] = "/tmp/talon-tls-XXXXXX";
    dir = ::mkdtemp(name);
    cert = dir + "/cert.pem";
    key = dir + "/key.pem";
  }
  ~Files() {
    std::error_code ec;
    std::filesystem::remove_all(dir, ec);
  }
  // A new key and a self-signed certificate with this serial number.
  void make(long serial) {
    EVP_PKEY* pkey = EVP_EC_gen("P-256");
    X509* x = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, pkey);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509_sign(x, pkey, EVP_sha256());
    if (FILE* f = std::fopen(cert.c_str(), "w")) {
      PEM_write_X509(f, x);
      std::fclose(f);
    }
    if (FILE* f = std::fopen(key.c_str(), "w")) {
      PEM_write_PrivateKey(f, pkey, nullptr, nullptr, 0, nullptr, nullptr);
      std::fclose(f);
    }
    X509_free(x);
    EVP_PKEY_free(pkey);
  }
  http::ServerConfig config() const {
    http::ServerConfig out;
    out.tls_cert_file = cert;
    out.tls_key_file = key;
    return out;
  }
  std::string dir, cert, key;
};

// A blocking TLS client over Client's socket.
class TlsClient {
 public:
  explicit TlsClient(const Lab& lab, int max_version = 0) : plain_(lab) {
    ctx_ = SSL_CTX_new(TLS_client_method());
    if (max_version != 0) {
      SSL_CTX_set_max_proto_version(ctx_, max_version);
    }
    SSL_CTX_set_cipher_list(ctx_, "ALL:@SECLEVEL=0");
    ssl_ = SSL_new(ctx_);
    const unsigned char alpn[] = "\x02h2\x08http/1.1";
    SSL_set_alpn_protos(ssl_, alpn, sizeof(alpn) - 1);
    SSL_set_fd(ssl_, plain_.fd());
    connected = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(ctx_);
  }
  std::string ask(const std::string& bytes, std::size_t at_least) {
    SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
    std::string out;
    char chunk[16384];
    int n = 0;
    while (out.size() < at_least && (n = SSL_read(ssl_, chunk, sizeof(chunk))) > 0) {
      out.append(chunk, static_cast<std::size_t>(n));
    }
    return out;
  }
  int last_error(int n) { return SSL_get_error(ssl_, n); }
  SSL* ssl() { return ssl_; }
  long serial() {
    X509* x = SSL_get1_peer_certificate(ssl_);
    const long out = ASN1_INTEGER_get(X509_get_serialNumber(x));
    X509_free(x);
    return out;
  }
  std::string alpn() {
    const unsigned char* p = nullptr;
    unsigned n = 0;
    SSL_get0_alpn_selected(ssl_, &p, &n);
    return {reinterpret_cast<const char*>(p), n};
  }
  bool connected = false;

 private:
  Client plain_;
  SSL_CTX* ctx_;
  SSL* ssl_;
};

}  // namespace

TEST_CASE("requests over TLS: keep-alive, a large answer, a watched wait, a clean end") {
  Files files;
  files.make(1);
  Lab lab(files.config());
  REQUIRE(lab.opened);
  CHECK(lab.server->addresses().at(0).starts_with("https://"));
  TlsClient client(lab);
  REQUIRE(client.connected);
  CHECK(client.alpn() == "http/1.1");
  CHECK(client.ask(get("/peer"), 1).ends_with(" 0 0 0 1"));
  CHECK(client.ask(get("/big"), std::size_t{4} << 20).size() > (std::size_t{4} << 20));
  CHECK(client.ask(get("/stream"), 1).starts_with("HTTP/1.1 200 OK\r\n"));
  TlsClient last(lab);
  const std::string all = last.ask(get("/echo", "Connection: close\r\n"), 1 << 20);
  CHECK(all.ends_with("GET /echo "));
  CHECK((SSL_get_shutdown(last.ssl()) & SSL_RECEIVED_SHUTDOWN) != 0);  // close_notify came
}

TEST_CASE("over TLS a client that leaves is noticed while its handler waits") {
  Files files;
  files.make(1);
  Lab lab(files.config());
  {
    TlsClient client(lab);
    SSL_write(client.ssl(), get("/wait").data(), static_cast<int>(get("/wait").size()));
    REQUIRE(eventually([&] { return lab.service.waiting.load(); }));
  }
  CHECK(eventually([&] { return lab.service.saw_gone.load(); }));
  CHECK(eventually([&] { return lab.counters().open == 0; }));
}

TEST_CASE("TLS 1.2 is spoken, 1.1 is not, plain text is not, silence ends") {
  Files files;
  files.make(1);
  http::ServerConfig config = files.config();
  config.header_timeout = 200ms;
  config.write_timeout = 200ms;
  Lab lab(std::move(config));
  CHECK(TlsClient(lab, TLS1_2_VERSION).connected);
  CHECK_FALSE(TlsClient(lab, TLS1_1_VERSION).connected);
  Client plain(lab);
  CHECK(plain.ask(get("/echo")).status == 0);
  Client silent(lab);
  CHECK(silent.rest().empty());
  CHECK(silent.closed);
  CHECK(eventually([&] { return lab.counters().open == 0; }));
}

TEST_CASE("a reload serves the new certificate; a bad one leaves the old") {
  Files files;
  files.make(1);
  Lab lab(files.config());
  CHECK(TlsClient(lab).serial() == 1);
  files.make(2);
  CHECK(lab.call([&] { return lab.server->reload_tls().has_value(); }));
  CHECK(TlsClient(lab).serial() == 2);
  std::filesystem::resize_file(files.cert, 10);
  const auto bad = lab.call([&] { return lab.server->reload_tls(); });
  REQUIRE_FALSE(bad);
  CHECK(bad.error().code == Code::invalid_request);
  CHECK(bad.error().message.find(files.cert) != std::string::npos);
  CHECK(TlsClient(lab).serial() == 2);
}

TEST_CASE("a certificate without its key, or with another's, is refused") {
  Files a;
  Files b;
  a.make(1);
  b.make(2);
  http::ServerConfig config = a.config();
  config.tls_key_file = b.key;
  CHECK_FALSE(Lab(config).opened);
  config.tls_key_file.clear();
  CHECK(Lab(config).error.code == Code::invalid_request);
}
