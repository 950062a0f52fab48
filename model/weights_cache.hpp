#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "model/weights.hpp"

namespace outrider::model {

/// A matrix of the network and where its packed form goes.
struct MatrixSlot {
  const GgufTensor* tensor = nullptr;
  kernels::WeightView view;
  std::unique_ptr<kernels::Matrix>* target = nullptr;
};

/// The packed matrices of one network in a directory, for fast starts: one file per model name and
/// shapes. A GGUF file that is the same as when they were packed (device, inode, size and times) is
/// not read again; of another one the digest must be equal. The directory must be as trustworthy as
/// the GGUF. One thread; A mapped `file` and `slots` outlive it.
class WeightsCache {
 public:
  WeightsCache(const std::string& directory, const GgufFile& file,
               std::span<const MatrixSlot> slots, kernels::Ops& ops);

  /// Fills all slots and returns the digest of the file's tensors, for which `digest_file` is asked
  /// when it has to be computed. `not_found`: there is no cache yet; `cancelled`; any other error:
  /// it cannot be used, and why. No slot is filled then.
  Result<Digest256> load(const std::function<Result<Digest256>()>& digest_file,
                         const LoadProgress& progress);
  /// Writes what the slots hold.
  Result<void> save(const Digest256& tensors, const LoadProgress& progress);

  const std::string& path() const { return path_; }

 private:
  std::string directory_;
  std::string path_;
  const GgufFile& file_;
  std::span<const MatrixSlot> slots_;
  kernels::Ops& ops_;
  Digest256 key_{};
};

}  // namespace outrider::model
