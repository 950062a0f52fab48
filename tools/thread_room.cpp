#include "tools/thread_room.hpp"

#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/cpu_count.hpp"

namespace outrider::tools {

Result<void> check_thread_room(uint32_t count) {
  std::promise<void> over;
  const std::shared_future<void> until = over.get_future().share();
  std::vector<std::thread> started;
  started.reserve(count);
  std::string why;
  try {
    while (started.size() < count) started.emplace_back([until] { until.wait(); });
  } catch (const std::system_error& error) {
    why = error.code().message();
  }
  over.set_value();
  for (std::thread& thread : started) thread.join();
  if (why.empty()) return {};
  return fail(ErrorCode::unavailable, "the system gives this process " +
                                          std::to_string(started.size()) + " of " +
                                          std::to_string(count) + " threads (" + why +
                                          "): raise `ulimit -u`, or pids.max of its container");
}

uint32_t serving_threads() {
  constexpr uint32_t k_but_compute = 32;
  return k_but_compute + usable_cpus().threads;
}

}  // namespace outrider::tools
