#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <algorithm>
#include <exception>
#include <string>

#include "server/async/task.h"

namespace talon::server {

struct Offload::Impl {
  Impl(Executor h, unsigned threads) : home(std::move(h)), pool(std::max(threads, 1u)) {}
  Executor home;
  asio::thread_pool pool;
  bool joined = false;
};

namespace {

// Shared by the waiting coroutine and the pool thread. `job` and `error` belong to the pool
// thread until the post that sets `done`; that post orders the two.
struct Job {
  explicit Job(const Executor& home) : ended(home, asio::steady_timer::time_point::max()) {}
  asio::steady_timer ended;
  std::function<void()> work;
  std::string error;
  bool done = false;
};

void run_job(Job& job) {
  try {
    job.work();
  } catch (const std::exception& e) {
    job.error = e.what();
  } catch (...) {
    job.error = "unknown exception";
  }
}

}  // namespace

Offload::Offload(Executor home, unsigned threads)
    : impl_(std::make_unique<Impl>(std::move(home), threads)) {}

Offload::~Offload() { join(); }

void Offload::join() {
  impl_->joined = true;
  impl_->pool.join();
}

Task<> Offload::run_erased(std::function<void()> work) {
  if (impl_->joined) {
    co_return fail(Code::unavailable, "offload: stopped");
  }
  auto job = std::make_shared<Job>(impl_->home);
  job->work = std::move(work);
  auto home = impl_->home;
  // The job moves to the pool and back, so that its timer is only destroyed on the I/O thread.
  asio::post(impl_->pool, [job, home]() mutable {
    run_job(*job);
    asio::post(home, [job = std::move(job)] {
      job->done = true;
      job->ended.cancel();
    });
  });
  while (!job->done) {
    co_await job->ended.async_wait(kNoThrow);  // a cancellation only makes us look again
  }
  job->work = nullptr;  // captures go on the I/O thread
  if (!job->error.empty()) {
    co_return fail(Code::internal, "offload: " + job->error);
  }
  co_return Result<>{};
}

}  // namespace talon::server
