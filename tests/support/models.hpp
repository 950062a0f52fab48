#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "model/loaded_model.hpp"

namespace outrider::testing_support {

/// One of the tiny models, "tiny-llama" or "tiny-qwen2". Tests run in the repository's root.
inline std::shared_ptr<const model::LoadedModel> load_tiny(const std::string& name,
                                                           std::shared_ptr<kernels::Ops> ops) {
  auto model = model::load_model("tests/support/models/" + name + ".gguf", std::move(ops));
  OUTRIDER_CHECK(model.ok(), model.error().message);
  return std::move(model).value();
}

}  // namespace outrider::testing_support
