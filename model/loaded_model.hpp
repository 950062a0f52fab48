#pragma once

#include <memory>
#include <string>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "kernels/ops.hpp"
#include "model/chat_template.hpp"
#include "model/model_config.hpp"
#include "model/tokenizer.hpp"
#include "model/weights.hpp"

namespace outrider::model {

/// Everything read from one GGUF file: immutable and shared by engine, gateway and tools. `ops` is
/// the one mutable part: only the engine's thread may use it.
struct LoadedModel {
  std::string name;  ///< What clients call it: the file's stem unless given.
  std::string path;
  ModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  Weights weights;
  std::shared_ptr<kernels::Ops> ops;
};

/// Maps the file, checks it and packs its weights for `ops`. Errors: also `io` where memory does
/// not reach, and `cancelled` when its progress says so.
Result<std::shared_ptr<const LoadedModel>> load_model(const std::string& path,
                                                      std::shared_ptr<kernels::Ops> ops,
                                                      const LoadOptions& options = {});

/// The text side only (tokenizer, template, config), for a gateway without weights.
struct ModelText {
  std::string name;
  ModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
};
Result<ModelText> load_model_text(const std::string& path);

}  // namespace outrider::model
