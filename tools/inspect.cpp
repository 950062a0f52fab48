#include "tools/command.hpp"
#include "tools/inspect_cluster.hpp"
#include "tools/inspect_kv.hpp"
#include "tools/inspect_model.hpp"
#include "tools/inspect_plan.hpp"

namespace outrider::tools {

void add_inspect(CLI::App& app, Action& action) {
  auto* inspect = app.add_subcommand(
      "inspect", "What is in a model file, a KV store, a KV plan or a running cluster");
  inspect->require_subcommand(1);
  inspect->footer("Example: outrider inspect model smollm2-135m");
  add_inspect_model(*inspect, action);
  add_inspect_kv(*inspect, action);
  add_inspect_plan(*inspect, action);
  add_inspect_cluster(*inspect, action);
}

}  // namespace outrider::tools
