#include "harness.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fake_isolator.h"

namespace talon::test {

namespace {

using server::Task;
namespace http = server::http;

// What the next incarnation of the daemon finds: outlives Harness::close().
std::map<std::string, std::shared_ptr<FakeWorld>>& worlds() {
  static std::map<std::string, std::shared_ptr<FakeWorld>> all;
  return all;
}

class Recorder final : public http::Responder {
 public:
  explicit Recorder(Reply& reply) : reply_(&reply) {}
  Task<> send(http::Response response) override {
    reply_->status = response.status;
    reply_->headers = response.headers;
    reply_->headers.emplace_back("content-type", response.content_type);
    reply_->body = std::move(response.body);
    started_ = true;
    co_return Result<>{};
  }
  Task<> start(http::Response head, std::vector<std::string>) override {
    reply_->status = head.status;
    reply_->headers = head.headers;
    reply_->headers.emplace_back("content-type", head.content_type);
    started_ = true;
    co_return Result<>{};
  }
  Task<> write(std::string_view bytes) override {
    reply_->body += bytes;
    co_return Result<>{};
  }
  Task<> finish(std::vector<std::pair<std::string, std::string>> trailers) override {
    reply_->trailers = std::move(trailers);
    co_return Result<>{};
  }
  bool started() const override { return started_; }
  bool gone() const override { return false; }

 private:
  Reply* reply_;
  bool started_ = false;
};

std::string lower(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

Task<> handle(server::api::Api* api, http::Request request, Reply* reply, bool* done) {
  Recorder recorder(*reply);
  auto handled = co_await api->handle(std::move(request), recorder);
  reply->cut = !handled;
  *done = true;
  co_return Result<>{};
}

Task<> note_end(Task<> task, bool* done, bool* good) {
  auto result = co_await std::move(task);
  *good = result.has_value();
  *done = true;
  co_return Result<>{};
}

}  // namespace

std::string Reply::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (lower(key) == name) {
      return value;
    }
  }
  return "";
}

boost::json::value Reply::json() const {
  boost::system::error_code ec;
  boost::json::value value = boost::json::parse(body, ec);
  return ec ? boost::json::value(nullptr) : value;
}

std::string Reply::text(std::string_view name) const {
  const boost::json::value value = json();
  if (!value.is_object()) {
    return "";
  }
  const boost::json::value* found = value.as_object().if_contains(name);
  return found != nullptr && found->is_string() ? std::string{found->as_string()} : "";
}

Harness::Harness() {
  std::string pattern = (std::filesystem::temp_directory_path() / "talon-api-XXXXXX").string();
  dir_ = ::mkdtemp(pattern.data());
  worlds()[dir_] = std::make_shared<FakeWorld>();
  std::filesystem::create_directories(dir_ + "/tree/etc");
  std::ofstream(dir_ + "/tree/etc/passwd")
      << "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/h:/bin/sh\n";
  std::ofstream(dir_ + "/tree/etc/group") << "root:x:0:\nuser:x:1000:\nadm:x:4:\n";
  open();
  auto imported = images_->import("base", dir_ + "/tree");
  TALON_ASSERT(imported.has_value());
}

Harness::~Harness() {
  close();
  worlds().erase(dir_);
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

void Harness::open() {
  const std::string data = dir_ + "/data";
  auto opened = server::node::DataDir::open(data);
  TALON_ASSERT(opened.has_value());
  data_.emplace(std::move(*opened));
  auto store = store::Store::open(data + "/talon.db");
  TALON_ASSERT(store.has_value());
  store_ = std::move(*store);
  auto tenant = server::api::ensure_admin(*store_, data);
  TALON_ASSERT(tenant.has_value());
  auto images = isolate::ImageStore::open(data);
  TALON_ASSERT(images.has_value());
  images_.emplace(std::move(*images));
  isolator_ = std::make_unique<FakeIsolator>(worlds()[dir_], data);
  io_.restart();
  const server::Executor ex = io_.get_executor();
  offload_ = std::make_unique<server::Offload>(ex, 2);
  group_ = std::make_unique<server::TaskGroup>(ex, [](std::string_view, const Error&) {});
  server::node::NodeParts parts{.ex = ex,
                                .offload = offload_.get(),
                                .store = store_.get(),
                                .isolator = isolator_.get(),
                                .images = &*images_,
                                .metrics = &metrics_,
                                .data = &*data_};
  node_ = std::make_unique<server::node::Node>(
      std::move(parts),
      server::node::NodeConfig{.unconfined_seccomp = false, .pools = {}, .max_sandboxes = 5});
  server::api::ApiParts api_parts{.offload = offload_.get(),
                                  .store = store_.get(),
                                  .node = node_.get(),
                                  .metrics = &metrics_,
                                  .default_tenant = *tenant};
  api_ = std::make_unique<server::api::Api>(std::move(api_parts), server::api::ApiConfig{});
  TALON_ASSERT(run(node_->start()));
  api_->set_ready(true);
  std::ifstream key(data + "/keys/admin.key");
  std::getline(key, admin_key_);
}

void Harness::close() {
  TALON_ASSERT(run(node_->stop(false)));
  run(group_->stop(Millis{1000}));
  io_.restart();
  io_.poll();
  api_.reset();
  node_.reset();
  group_.reset();
  offload_->join();
  io_.restart();
  io_.poll();
  offload_.reset();
  isolator_.reset();
  store_.reset();
}

void Harness::restart() {
  close();
  open();
}

FakeIsolator& Harness::fake() { return *isolator_; }

bool Harness::until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    io_.restart();
    io_.run_one_for(std::chrono::milliseconds(50));
  }
  return true;
}

bool Harness::run(Task<> task) {
  bool done = false;
  bool good = false;
  server::TaskGroup group(io_.get_executor(), [](std::string_view, const Error&) {});
  group.spawn("harness", note_end(std::move(task), &done, &good));
  const bool ended = until([&] { return done && group.running() == 0; });
  return ended && good;
}

Reply Harness::call(std::string method, std::string target, std::string body, Headers headers) {
  http::Request request;
  request.method = std::move(method);
  request.target = target;
  const auto mark = target.find('?');
  request.path = target.substr(0, mark);
  request.query = mark == std::string::npos ? "" : target.substr(mark + 1);
  request.body = std::move(body);
  request.peer.address = "127.0.0.1:1";
  request.id = "rqtest";
  bool credential = false;
  for (auto& [name, value] : headers) {
    name = lower(name);
    credential = credential || name == "authorization" || name == "x-api-key";
    if (!(name == "authorization" && value.empty())) {
      request.headers.emplace_back(name, value);
    }
  }
  if (!credential) {
    request.headers.emplace_back("authorization", "Bearer " + admin_key_);
  }
  Reply reply;
  bool done = false;
  group_->spawn("call", handle(api_.get(), std::move(request), &reply, &done));
  if (!until([&] { return done; })) {
    reply.status = -1;  // it hangs
  }
  return reply;
}

std::string Harness::make(std::string body) {
  if (body == "{}") {
    body = R"({"image":"base"})";
  }
  const Reply reply = call("POST", "/v1/sandboxes?wait=running", body);
  return reply.status == 201 ? reply.text("id") : "";
}

}  // namespace talon::test
