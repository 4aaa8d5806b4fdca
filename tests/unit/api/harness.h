#pragma once
// The API over a fake isolator: the real store, node and service on one thread, without a
// kernel. A fake exec does what its argv says at once and writes a real log:
//   out TEXT…   each TEXT as one frame on stdout      err TEXT   one frame on stderr
//   exit N      ends with N (default 0)               hang       runs until a signal or end
// e.g. {"out","a","b","err","c","exit","3"}.

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "server/api/api.h"
#include "server/node/node.h"

namespace talon::test {

using Headers = std::vector<std::pair<std::string, std::string>>;

class FakeIsolator;

struct Reply {
  int status = 0;
  Headers headers;
  std::string body;
  Headers trailers;
  bool cut = false;  // the handler failed in the middle of a stream
  std::string header(std::string_view name) const;
  boost::json::value json() const;
  // A string member of the body, "" when there is none.
  std::string text(std::string_view name) const;
};

class Harness {
 public:
  Harness();
  ~Harness();

  // One request, as the admin unless headers say otherwise ({"authorization", ""} = nobody).
  Reply call(std::string method, std::string target, std::string body = "", Headers headers = {});
  // A running sandbox.
  std::string make(std::string body = "{}");
  // Runs the loop until `done` or 5 s have passed; false then.
  bool until(const std::function<bool()>& done);
  // Ends the daemon's part without ending sandboxes, and starts it again on the same data.
  void restart();

  FakeIsolator& fake();
  store::Store& store() { return *store_; }
  server::node::Node& node() { return *node_; }
  const std::string& admin_key() const { return admin_key_; }
  const std::string& dir() const { return dir_; }

 private:
  void open();
  void close();
  bool run(server::Task<> task);

  std::string dir_;
  std::string admin_key_;
  boost::asio::io_context io_{1};
  Metrics metrics_;
  std::unique_ptr<store::Store> store_;
  std::optional<server::node::DataDir> data_;
  std::optional<isolate::ImageStore> images_;
  std::unique_ptr<FakeIsolator> isolator_;
  std::unique_ptr<server::Offload> offload_;
  std::unique_ptr<server::node::Node> node_;
  std::unique_ptr<server::api::Api> api_;
  std::unique_ptr<server::TaskGroup> group_;
};

}  // namespace talon::test
