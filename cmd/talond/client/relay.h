#pragma once
// One process inside and the three descriptors of the caller, over a WebSocket. The log is the
// truth: after a cut (talond was killed, was upgraded, a network broke) it goes on at its cursor,
// so no byte of output is lost or doubled. Input of a pipe is sent with its offset by requests of
// its own, so it is not either; what is typed into a terminal is sent when talond is back.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cli/signals.h"
#include "cli/terminal.h"
#include "client/detach.h"
#include "client/ready.h"
#include "client/session.h"

namespace talon::client {

struct RelayOptions {
  std::string sandbox;
  std::string px = {};
  bool tty = false;
  bool input = false;   // pass standard input on
  bool writer = false;  // tty: type and set the size
  bool steal = false;
  bool redraw = false;            // tty: ask what runs there to draw its screen again
  bool leave_at_signals = false;  // TERM and the like detach, instead of being passed on
  DetachKeys keys = {};
  std::string from = "0";
  std::string screen = {};  // tty: what stood there before `from`, shown once the keys are ours
};

// How the process ended, as the API says it.
struct RelayEnd {
  bool left = false;  // detached: it runs on
  std::optional<int> exit_code;
  int signal = 0;
  bool timed_out = false;
  std::uint64_t lost = 0;  // bytes of output that were not kept for us
};

class Relay {
 public:
  Relay(Session& session, cli::Signals& signals, RelayOptions options);
  // Until the process has ended and its output was written, or the terminal was left. Our end of
  // standard input and output is as before then.
  Answer<RelayEnd> run();

 private:
  bool finished() const { return over_ || failure_; }
  Task<> all();
  Task<> follow();
  Task<bool> attach();  // whether it was worth something before it ended
  Task<> take(Message message);
  void event(const json::value& event);
  void exited(const json::object& result);
  Task<> write(int fd, std::string_view bytes);
  void output_closed(int fd, int error);

  Task<> pass_signals();
  void pass_signal(int number);
  void send_signal(int number, std::string_view scope);
  void send_control(json::object control);
  void resize();

  Task<> type();
  void send_typed();
  Task<> read_input();
  Task<> feed();
  Task<bool> post_input(std::string bytes, bool close);
  enum class Taken { all, part, none };  // none: the process reads no more
  Answer<Taken> input_taken(const Reply& reply, std::string& bytes, bool close);
  void leave();
  void say(std::string_view text) const;
  std::string path(std::string_view more) const;

  Session& session_;
  cli::Signals& signals_;
  RelayOptions options_;
  Executor executor_;
  Ready input_, output_, errors_;
  server::Notifier input_changed_;  // read_ahead_ or input_over_
  std::optional<cli::RawTerminal> raw_;
  server::TaskGroup group_;

  Connection* live_ = nullptr;  // attached; owned by attach()
  std::string cursor_;
  RelayEnd end_;
  bool over_ = false;
  std::optional<Failure> failure_;
  std::string last_error_;               // code of the last error event, said once
  bool closed_[3] = {};                  // our descriptor n takes nothing any more
  int write_error_ = 0;                  // and why, unless only its reader went away
  int endings_ = 0;                      // signals that ask for the end
  std::vector<json::object> controls_;   // wait for a connection
  std::string typed_;                    // the same
  std::string read_ahead_;               // of our input, and for no request yet
  bool input_over_ = false;              // its end was read
  std::unique_ptr<Connection> feeding_;  // for requests with input
  std::uint64_t given_ = 0;              // bytes of input that the process has been given
};

}  // namespace talon::client
