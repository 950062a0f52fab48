#pragma once

#include <kj/async-unix.h>

namespace outrider::tools {

/// Before any thread exists, or a thread of a library takes the signal's default action.
void capture_stop_signals();

/// Resolves at the next SIGTERM or SIGINT; capture_stop_signals was called. One that is heard
/// within a fifth of a second of one that counted is its echo and does not count, here and below.
kj::Promise<void> stop_signal(kj::UnixEventPort& port);

/// Whether one waits to be taken. Where they are captured; any thread.
bool is_stop_signal_pending();

/// As a second signal does. Async-signal-safe.
[[noreturn]] void end_at_once(int exit_code);

/// From here on the next SIGTERM or SIGINT ends the process at once, with this exit code, whatever
/// still has to be waited for. The port hears of none any more.
void end_at_the_next_signal(int exit_code);

}  // namespace outrider::tools
