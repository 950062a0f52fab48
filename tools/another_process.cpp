#include "tools/another_process.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <iostream>

namespace outrider::tools {

std::optional<int> in_another_process(const std::function<int()>& work) {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child < 0) return work();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int code = work();
    std::cout.flush();
    ::_exit(code);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFEXITED(status)) return std::nullopt;
  return WEXITSTATUS(status);
}

}  // namespace outrider::tools
