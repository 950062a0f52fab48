#pragma once

#include <functional>
#include <optional>

namespace outrider::tools {

/// Does it in a process of its own and waits for that: its exit code, or none where a signal ended
/// it. For what may end its process; the caller has no threads.
std::optional<int> in_another_process(const std::function<int()>& work);

}  // namespace outrider::tools
