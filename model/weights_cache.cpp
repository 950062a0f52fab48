#include "model/weights_cache.hpp"

#include <filesystem>
#include <utility>
#include <vector>

#include "model/packed_file.hpp"

namespace outrider::model {
namespace {

/// Bytes that are read between two looks at `progress`.
constexpr uint64_t k_window_bytes = uint64_t{128} << 20;

Digest256 shapes_digest(std::span<const MatrixSlot> slots) {
  Sha256 sha;
  for (const MatrixSlot& slot : slots) {
    sha.update(slot.tensor->name.size()).update(slot.tensor->name);
    sha.update(static_cast<uint64_t>(slot.view.type));
    sha.update(slot.view.rows).update(slot.view.cols);
  }
  return sha.finish();
}

Result<void> check_all(const PackedFile& packed, size_t matrices, kernels::Ops& ops,
                       const LoadProgress& progress) {
  uint64_t total = 0;
  for (size_t i = 0; i < matrices; ++i) total += packed.matrix(i).size();
  uint64_t done = 0;
  std::vector<uint8_t> intact(matrices);
  for (size_t begin = 0, end = 0; begin < matrices; begin = end) {
    const uint64_t before = done;
    while (end < matrices && done - before < k_window_bytes) done += packed.matrix(end++).size();
    ops.parallel_for(end - begin,
                     [&](size_t i) { intact[begin + i] = packed.is_intact(begin + i); });
    for (size_t i = begin; i < end; ++i) {
      if (!intact[i]) {
        return fail(ErrorCode::corrupt, "matrix " + std::to_string(i) + " is damaged");
      }
    }
    if (progress && !progress(done, total)) {
      return fail(ErrorCode::cancelled, "the loading was stopped");
    }
  }
  return {};
}

}  // namespace

WeightsCache::WeightsCache(const std::string& directory, const GgufFile& file,
                           std::span<const MatrixSlot> slots, kernels::Ops& ops)
    : directory_(directory), file_(file), slots_(slots), ops_(ops) {
  const Digest256 shapes = shapes_digest(slots);
  const std::string stem = std::filesystem::path(file.name()).stem().string();
  path_ = (std::filesystem::path(directory) /
           (stem + '-' + to_hex(std::span(shapes).first(8)) + ".weights"))
              .string();
  Sha256 sha;
  sha.update(ops.packing().size()).update(ops.packing());
  key_ = sha.update(std::as_bytes(std::span(shapes))).finish();
}

Result<Digest256> WeightsCache::load(const std::function<Result<Digest256>()>& digest_file,
                                     const LoadProgress& progress) {
  remove_stale_packed_files(directory_);
  auto packed = PackedFile::open(path_, key_, slots_.size());
  if (!packed) return packed.error();
  const Digest256 tensors = packed->header().tensors;
  if (packed->header().source != *file_.identity()) {
    const auto own = digest_file();
    if (!own) return own.error();
    if (*own != tensors) {
      return fail(ErrorCode::invalid_argument, path_ + ": of another model with such matrices");
    }
    // Where that fails the next start computes the digest again.
    (void)packed->set_source(*file_.identity());
  }
  if (auto checked = check_all(*packed, slots_.size(), ops_, progress); !checked) {
    return fail(checked.error().code, path_ + ": " + checked.error().message);
  }
  std::vector<std::unique_ptr<kernels::Matrix>> matrices;
  for (size_t i = 0; i < slots_.size(); ++i) {
    matrices.push_back(ops_.adopt(slots_[i].view, packed->matrix(i).size(), packed->share(i)));
    if (matrices.back() == nullptr) {
      return fail(ErrorCode::corrupt,
                  path_ + ": matrix " + std::to_string(i) + " has an unexpected size");
    }
  }
  for (size_t i = 0; i < slots_.size(); ++i) *slots_[i].target = std::move(matrices[i]);
  return tensors;
}

Result<void> WeightsCache::save(const Digest256& tensors, const LoadProgress& progress) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) return fail(ErrorCode::io, directory_ + ": cannot create: " + error.message());
  PackedContents contents;
  contents.key = key_;
  contents.tensors = tensors;
  contents.source = *file_.identity();
  uint64_t total = 0;
  for (const MatrixSlot& slot : slots_) {
    contents.matrices.push_back((*slot.target)->packed());
    total += contents.matrices.back().size();
  }
  contents.sums.resize(slots_.size());
  ops_.parallel_for(slots_.size(),
                    [&](size_t i) { contents.sums[i] = hash128(contents.matrices[i]); });
  return write_packed_file(path_, contents, [&] { return !progress || progress(total, total); });
}

}  // namespace outrider::model
