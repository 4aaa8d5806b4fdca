// What flows through the daemon: output to its readers, keys to a terminal and back, many clients
// at once; and what the daemon holds meanwhile.

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pty.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <thread>

#include "bench/contenders.h"
#include "support/ws_client.h"

namespace talon::bench {

namespace {

constexpr int kProcesses = 10;  // that print ten lines a second
constexpr int kViewers = 10;    // of each
constexpr int kExecs = 150;
constexpr int kKeys = 1000;  // in one line, which may have 4095
// As people type: without pauses init would see a stream of small writes, and gather it.
constexpr useconds_t kKeyGapUs = 10'000;
constexpr int kOutputRounds = 9;
constexpr std::uint64_t kOutputMiB = 128;
constexpr std::uint64_t kFloodMiB = 10 * 1024;
constexpr int kCyclesAtOnce = 200;  // of all threads together

std::string box(const std::string& id) { return "/v1/sandboxes/" + id; }

// ---- exec while others read

// Reads and forgets what comes, until told to stop.
void drain(const std::vector<test::Connection>& streams, const std::atomic<bool>& stop,
           std::atomic<std::uint64_t>& bytes) {
  std::vector<pollfd> fds;
  for (const test::Connection& stream : streams) {
    fds.push_back({.fd = stream.fd(), .events = POLLIN, .revents = 0});
  }
  std::array<char, 65536> buffer;
  while (!stop) {
    if (poll(fds.data(), fds.size(), 100) <= 0) {
      continue;
    }
    for (const pollfd& fd : fds) {
      if ((fd.revents & POLLIN) != 0) {
        const ssize_t n = recv(fd.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
        bytes += n > 0 ? static_cast<std::uint64_t>(n) : 0;
      }
    }
  }
}

Result<std::vector<double>> exec_times(Served& served) {
  std::vector<double> us;
  for (int i = 0; i < kExecs; ++i) {
    const double begin = now_us();
    TALON_CHECK(served.api().run_true(served.standing()));
    us.push_back(now_us() - begin);
  }
  return us;
}

Result<std::vector<Figure>> exec_among_streams(Served& served) {
  TALON_TRY(before, exec_times(served));
  TALON_TRY(id, served.api().create());
  std::vector<test::Connection> streams;
  const std::string loop = "while :; do echo a line of a server; busybox usleep 100000; done";
  for (int i = 0; i < kProcesses; ++i) {
    TALON_TRY(reply, served.api().call("POST", box(id) + "/processes",
                                       R"({"argv":["/bin/sh","-c",")" + loop + R"("]})", 201));
    for (int k = 0; k < kViewers; ++k) {
      test::Reply head;
      streams.push_back(served.client().stream(
          box(id) + "/processes/" + reply.text("id") + "/logs?follow=1", head));
      if (head.status != 200) {
        return fail(Code::unavailable, "follow: " + std::to_string(head.status) + head.body);
      }
    }
  }
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> bytes = 0;
  Result<std::vector<double>> during;
  {
    const std::jthread reader{[&] { drain(streams, stop, bytes); }};
    during = exec_times(served);
    stop = true;
  }
  TALON_TRY(among, std::move(during));
  streams.clear();
  TALON_CHECK(served.api().remove(id));
  if (bytes == 0) {
    return fail(Code::internal, "the streams carried nothing");
  }
  TALON_TRY(after, exec_times(served));
  before.insert(before.end(), after.begin(), after.end());
  const Summary with = summarize(std::move(among));
  const Summary without = summarize(std::move(before));
  const std::string name =
      "api: exec while " + std::to_string(kProcesses * kViewers) + " streams are open and read";
  return std::vector<Figure>{{.name = name + ", p50",
                              .value = with.median,
                              .unit = "µs",
                              .base = "with none",
                              .base_value = without.median,
                              .bar = 2,
                              .bar_text = "2"},
                             {.name = name + ", p99",
                              .value = with.p99,
                              .unit = "µs",
                              .base = "with none",
                              .base_value = without.p99}};
}

// ---- keys

Result<std::vector<double>> echo_times(Served& served) {
  TALON_TRY(made, served.api().call("POST", box(served.standing()) + "/pty",
                                    R"({"argv":["/bin/cat"]})", 201));
  test::Socket socket{served.client(),
                      box(served.standing()) + "/pty/" + made.text("id") + "?write=1"};
  if (!socket.open()) {
    return fail(Code::unavailable, "attach: " + std::to_string(socket.head().status));
  }
  std::vector<double> us;
  for (int i = 0; i < kKeys; ++i) {
    usleep(kKeyGapUs);
    const std::size_t had = socket.output.size();
    const double begin = now_us();
    if (!socket.input("k") ||
        !socket.until(test::Seconds{10}, [&] { return socket.output.size() > had; })) {
      return fail(Code::timeout, "a key came to no echo");
    }
    us.push_back(now_us() - begin);
  }
  socket.control({{"type", "signal"}, {"signal", "KILL"}});
  return socket.until_end(test::Seconds{10})
             ? std::move(us)
             : Result<std::vector<double>>{fail(Code::timeout, "the terminal does not end")};
}

// A TCP connection of this process with itself: {client, server}.
Result<std::pair<UniqueFd, UniqueFd>> tcp_pair() {
  UniqueFd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  UniqueFd client{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (bind(listener.get(), generic, size) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), generic, &size) != 0 ||
      connect(client.get(), generic, size) != 0) {
    return fail_sys(errno, "a TCP connection");
  }
  UniqueFd server{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  if (!server) {
    return fail_sys(errno, "accept");
  }
  const int on = 1;
  setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(server.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return std::pair{std::move(client), std::move(server)};
}

// Passes bytes on until there are none.
void relay(int from, int to) {
  std::array<char, 65536> buffer;
  for (ssize_t n = 0; (n = read(from, buffer.data(), buffer.size())) > 0;) {
    if (!write_all(to, std::string_view{buffer.data(), static_cast<std::size_t>(n)})) {
      return;
    }
  }
}

// The same keys over a socket to a terminal with nothing between but two threads that pass on.
Result<std::vector<double>> bare_echo_times() {
  int master_fd = -1;
  int slave_fd = -1;
  if (openpty(&master_fd, &slave_fd, nullptr, nullptr, nullptr) != 0) {
    return fail_sys(errno, "openpty");
  }
  UniqueFd master{master_fd};
  UniqueFd slave{slave_fd};
  TALON_TRY(ends, tcp_pair());
  auto& [client, server] = ends;
  std::jthread in{[&] { relay(server.get(), master.get()); }};
  std::jthread out{[&] { relay(master.get(), server.get()); }};
  std::vector<double> us;
  Result<> failed;
  for (int i = 0; i < kKeys && failed; ++i) {
    usleep(kKeyGapUs);
    std::array<char, 16> echo;
    const double begin = now_us();
    if (write(client.get(), "k", 1) != 1 || recv(client.get(), echo.data(), echo.size(), 0) <= 0) {
      failed = fail_sys(errno, "the bare terminal");
    }
    us.push_back(now_us() - begin);
  }
  shutdown(client.get(), SHUT_WR);  // `in` ends
  slave.reset();                    // and `out`, by EIO (pty(7))
  TALON_CHECK(failed);
  return us;
}

Result<std::vector<Figure>> echo(Served& served) {
  TALON_TRY(through, echo_times(served));
  TALON_TRY(bare, bare_echo_times());
  const Summary ours = summarize(std::move(through));
  const Summary theirs = summarize(std::move(bare));
  const auto figure = [](const char* which, double value, double base) {
    return Figure{.name = std::string{"echo of a key in a terminal, by WebSocket, "} + which,
                  .value = value,
                  .unit = "µs",
                  .base = "a relay to a bare terminal",
                  .base_value = base};
  };
  return std::vector<Figure>{figure("p50", ours.median, theirs.median),
                             figure("p99", ours.p99, theirs.p99),
                             // A screen at 60 Hz shows it in its next picture.
                             {.name = "echo of a key, p99, in itself",
                              .value = ours.p99 / 1000,
                              .unit = "ms",
                              .bar = 16,
                              .bar_text = "16 ms"}};
}

// ---- output

std::string printing(std::uint64_t mib) {
  return R"("argv":["/bin/busybox","dd","if=/dev/zero","bs=64k","count=)" +
         std::to_string(mib * 16) + R"("])";
}

// Seconds until `bytes` and the end have come through `fd`.
Result<double> swallow(int fd, std::uint64_t bytes, double begin) {
  std::vector<char> buffer(256 * 1024);
  std::uint64_t got = 0;
  for (ssize_t n = 0; (n = recv(fd, buffer.data(), buffer.size(), 0)) > 0;) {
    got += static_cast<std::uint64_t>(n);
  }
  if (got < bytes) {
    return fail(Code::io, std::to_string(got) + " of " + std::to_string(bytes) + " bytes came");
  }
  return (now_us() - begin) / 1e6;
}

// In a sandbox of its own, whose log goes with it: what waits to be written to the disk slows
// whoever writes next.
Result<double> served_output(Served& served) {
  TALON_TRY(id, served.api().create());
  test::Connection connection{served.client().endpoint()};
  const std::string body = "{" + printing(kOutputMiB) + R"(,"max_output":")" +
                           std::to_string(kOutputMiB * 2) + R"(MiB"})";
  const double begin = now_us();
  connection.send(served.client().raw("POST", box(id) + "/run", body,
                                      {{"Content-Type", "application/json"},
                                       {"Accept", "application/octet-stream"},
                                       {"Connection", "close"}}));
  auto seconds = swallow(connection.fd(), kOutputMiB << 20, begin);
  TALON_CHECK(served.api().remove(id));
  return seconds;
}

// The same program into a pipe, a thread that passes on, a socket.
Result<double> bare_output(const Workshop& shop) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return fail_sys(errno, "pipe2");
  }
  UniqueFd out{pipe_fds[0]};
  UniqueFd in{pipe_fds[1]};
  TALON_TRY(ends, tcp_pair());
  auto& [client, server] = ends;
  std::string args[] = {shop.rootfs() + "/bin/busybox", "dd", "if=/dev/zero", "bs=64k",
                        "count=" + std::to_string(kOutputMiB * 16)};
  char* argv[] = {args[0].data(), args[1].data(), args[2].data(),
                  args[3].data(), args[4].data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.get(), 1);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  const double begin = now_us();
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &files, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return fail_sys(error, "start dd");
  }
  in.reset();
  std::jthread pass{[&] {
    relay(out.get(), server.get());
    shutdown(server.get(), SHUT_WR);
  }};
  auto seconds = swallow(client.get(), kOutputMiB << 20, begin);
  waitpid(pid, nullptr, 0);
  return seconds;
}

Result<std::vector<Figure>> output(Served& served) {
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = 0; round < kOutputRounds; ++round) {
    TALON_TRY(through, served_output(served));
    ours.push_back(static_cast<double>(kOutputMiB) / through);
    TALON_TRY(bare, bare_output(served.shop()));
    theirs.push_back(static_cast<double>(kOutputMiB) / bare);
  }
  return std::vector<Figure>{{.name = "output of a process to an HTTP client",
                              .value = summarize(std::move(ours)).median,
                              .unit = "MiB/s",
                              .base = "through a bare pipe and socket",
                              .base_value = summarize(std::move(theirs)).median,
                              .bar = 0.5,
                              .bar_text = "1/2",
                              .at_least = true}};
}

// ---- memory of the daemon

Result<std::vector<Figure>> flood(Served& served) {
  const std::string status = "/proc/" + std::to_string(served.pid()) + "/status";
  const auto rss = [&] { return proc_kib(status, "VmRSS") / 1024; };
  const double before = rss();
  double most = before;
  const double begin = now_us();
  TALON_TRY(made, served.api().call("POST", box(served.standing()) + "/processes",
                                    "{" + printing(kFloodMiB) + "}", 201));
  const std::string path = box(served.standing()) + "/processes/" + made.text("id");
  while (true) {
    TALON_TRY(now, served.api().call("GET", path, "", 200));
    most = std::max(most, rss());
    if (now.text("state") == "exited") {
      if (now.at("result.usage.stdout_bytes").to_number<std::uint64_t>() != kFloodMiB << 20) {
        return fail(Code::internal, "the flood was cut short: " + now.body);
      }
      break;
    }
    usleep(50'000);
  }
  const double rate = static_cast<double>(kFloodMiB) / ((now_us() - begin) / 1e6);
  return std::vector<Figure>{{.name = "daemon: memory (RSS) when it has started",
                              .value = served.idle_mib(),
                              .unit = "MiB",
                              .bar = 30,
                              .bar_text = "30 MiB"},
                             {.name = "daemon: growth while one sandbox prints 10 GiB to nobody",
                              .value = most - before,
                              .unit = "MiB",
                              .bar = 4,
                              .bar_text = "4 MiB"},
                             {.name = "the rate of that", .value = rate, .unit = "MiB/s"}};
}

// ---- many clients

Result<std::vector<double>> cycles(Served& served, int threads) {
  std::mutex mutex;
  std::vector<double> us;
  TALON_TRY(took, together(threads, [&](int) -> Result<> {
              TALON_TRY(api, served.connect());
              for (int i = 0; i < std::max(1, kCyclesAtOnce / threads); ++i) {
                const double begin = now_us();
                TALON_TRY(id, api.create());
                TALON_CHECK(api.run_true(id));
                TALON_CHECK(api.remove(id));
                const std::lock_guard guard{mutex};
                us.push_back(now_us() - begin);
              }
              return {};
            }));
  us.push_back(took * 1e6);  // last: the whole
  return us;
}

Result<std::vector<Figure>> at_once(Served& served, OciRuntime& crun, int threads) {
  TALON_TRY(ours, cycles(served, threads));
  const double our_seconds = ours.back() / 1e6;
  ours.pop_back();
  std::mutex mutex;
  std::vector<double> theirs;
  TALON_TRY(their_seconds, together(threads, [&](int) -> Result<> {
              for (int i = 0; i < std::max(1, kCyclesAtOnce / 2 / threads); ++i) {
                TALON_TRY(us, crun.run());
                const std::lock_guard guard{mutex};
                theirs.push_back(us);
              }
              return {};
            }));
  const std::string name = "api: create + run + delete, " + std::to_string(threads) + " at once, ";
  const double our_rate = static_cast<double>(ours.size()) / our_seconds;
  const double their_rate = static_cast<double>(theirs.size()) / their_seconds;
  const Summary our_times = summarize(std::move(ours));
  const Summary their_times = summarize(std::move(theirs));
  const auto time = [&](const char* which, double value, double base) {
    return Figure{.name = name + which,
                  .value = value / 1000,
                  .unit = "ms",
                  .base = "crun run",
                  .base_value = base / 1000};
  };
  return std::vector<Figure>{time("p50", our_times.median, their_times.median),
                             time("p95", our_times.p95, their_times.p95),
                             time("p99", our_times.p99, their_times.p99),
                             {.name = name + "rate",
                              .value = our_rate,
                              .unit = "/s",
                              .base = "crun run",
                              .base_value = their_rate}};
}

// From the request that makes the sandbox to the first byte that its first command prints.
Result<double> first_output(Served& served) {
  const double begin = now_us();
  TALON_TRY(id, served.api().create());
  test::Connection connection{served.client().endpoint()};
  connection.send(served.client().raw(
      "POST", box(id) + "/run", R"({"argv":["/bin/busybox","echo","here"]})",
      {{"Content-Type", "application/json"}, {"Accept", "application/octet-stream"}}));
  const test::Reply head = connection.read_head(test::Seconds{20});
  const auto piece = connection.read_piece(test::Seconds{20});
  const double us = now_us() - begin;
  if (head.status != 200 || piece != "here\n") {
    return fail(Code::internal, "the first output did not come");
  }
  TALON_CHECK(served.api().remove(id));
  return us;
}

}  // namespace

void add_stream_rows(std::vector<Row>& rows, Lazy<Served>& served) {
  rows.push_back({.name = "api: create to the first byte of output",
                  .base = "crun run",
                  .once = [&served]() -> Result<double> {
                    TALON_TRY(it, served.get());
                    return first_output(*it);
                  }});
}

void add_experiments(std::vector<Experiment>& experiments, Lazy<Served>& served,
                     Lazy<OciRuntime>& crun) {
  using Figures = Result<std::vector<Figure>>;
  const auto add = [&](const char* name, Figures (*run)(Served&)) {
    experiments.push_back({name, [&served, run]() -> Figures {
                             TALON_TRY(it, served.get());
                             return run(*it);
                           }});
  };
  add("api: exec while streams are open", exec_among_streams);
  add("echo of keys in a terminal", echo);
  add("output of a process to an HTTP client", output);
  add("daemon: memory idle and in a flood", flood);
  for (const int threads : {1, 8, 50}) {
    experiments.push_back({"api: create + run + delete, " + std::to_string(threads) + " at once",
                           [&served, &crun, threads]() -> Figures {
                             TALON_TRY(it, served.get());
                             TALON_TRY(peer, crun.get());
                             return at_once(*it, *peer, threads);
                           }});
  }
}

}  // namespace talon::bench
