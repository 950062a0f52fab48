#include "kvstore/record.hpp"

#include <cstring>

#include "base/bytes.hpp"
#include "base/limits.hpp"

namespace outrider::kvstore {
namespace {

constexpr uint32_t k_magic = 0x314B564F;  // "OVK1"
constexpr uint16_t k_version = 1;

// Layout: Head, tensor table, tokens, header check (XXH3-64), tensors, check of all (XXH3-128).
struct Head {
  uint32_t magic = k_magic;
  uint16_t version = k_version;
  uint16_t tensors = 0;
  uint32_t tokens = 0;
  uint32_t depth = 0;
  uint64_t record_bytes = 0;
  Digest256 ns{};
  BlockId id{};
  BlockId parent{};
};
static_assert(sizeof(Head) == 120 && std::is_trivially_copyable_v<Head>);

struct TableEntry {
  char name[limits::kv_tensor_name_bytes_max] = {};  // zero padded
  uint32_t layers = 0;
  uint32_t layer_bytes = 0;
};
static_assert(sizeof(TableEntry) == 32 && std::is_trivially_copyable_v<TableEntry>);

using HeaderCheck = uint64_t;
using RecordCheck = std::array<uint64_t, 2>;

uint64_t header_bytes(uint64_t tensors, uint64_t tokens) {
  return sizeof(Head) + tensors * sizeof(TableEntry) + tokens * sizeof(int32_t);
}

Result<void> check_block(const Block& block) {
  if (block.tensors.empty() || block.tensors.size() > limits::kv_record_tensors_max) {
    return fail(ErrorCode::invalid_argument, "a block has 1 to 64 tensors", "tensors");
  }
  if (block.tokens.empty() || block.tokens.size() > limits::kv_record_tokens_max) {
    return fail(ErrorCode::invalid_argument, "a block has 1 to 4096 tokens", "tokens");
  }
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    const Tensor& tensor = block.tensors[i];
    if (tensor.name.empty() || tensor.name.size() > limits::kv_tensor_name_bytes_max ||
        tensor.name.find('\0') != std::string::npos) {
      return fail(ErrorCode::invalid_argument, "a tensor's name has 1 to 24 bytes", "name");
    }
    for (size_t k = 0; k < i; ++k) {
      if (block.tensors[k].name == tensor.name) {
        return fail(ErrorCode::invalid_argument, "two tensors have one name", "name");
      }
    }
    if (tensor.layers == 0 || tensor.bytes.size() % tensor.layers != 0) {
      return fail(ErrorCode::invalid_argument, "a tensor's bytes are a multiple of its layers",
                  "layers");
    }
  }
  if (encoded_bytes(block) > limits::kv_record_bytes_max) {
    return fail(ErrorCode::too_large, "a record of " + std::to_string(encoded_bytes(block)) +
                                          " bytes; at most " +
                                          std::to_string(limits::kv_record_bytes_max));
  }
  return {};
}

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}

  template <class T>
  void put(const T& value) {
    raw(&value, sizeof(T));
  }
  void raw(const void* from, size_t count) {
    if (count != 0) std::memcpy(out_.data() + position_, from, count);
    position_ += count;
  }
  std::span<const std::byte> written() const { return out_.first(position_); }

 private:
  std::span<std::byte> out_;
  size_t position_ = 0;
};

Error broken(const char* what) {
  return fail(ErrorCode::corrupt, what);
}

Result<TensorView> decode_entry(std::span<const std::byte> at, uint64_t payload_left) {
  TableEntry entry;
  std::memcpy(&entry, at.data(), sizeof(entry));
  const std::string_view padded(reinterpret_cast<const char*>(at.data()), sizeof(entry.name));
  const std::string_view name = padded.substr(0, padded.find('\0'));
  if (name.empty() || padded.find_first_not_of('\0', name.size()) != padded.npos) {
    return broken("a tensor's name is broken");
  }
  const uint64_t bytes = uint64_t{entry.layers} * entry.layer_bytes;
  if (entry.layers == 0 || bytes > payload_left) return broken("a tensor's size is broken");
  return TensorView{name, entry.layers, {static_cast<const std::byte*>(nullptr), size_t{bytes}}};
}

/// The table, with views that have a size but no place yet.
Result<std::vector<TensorView>> decode_table(std::span<const std::byte> table, uint64_t payload) {
  std::vector<TensorView> tensors;
  tensors.reserve(table.size() / sizeof(TableEntry));
  for (size_t at = 0; at < table.size(); at += sizeof(TableEntry)) {
    TensorView tensor;
    OUTRIDER_ASSIGN(tensor, decode_entry(table.subspan(at, sizeof(TableEntry)), payload));
    for (const TensorView& earlier : tensors) {
      if (earlier.name == tensor.name) return broken("two tensors have one name");
    }
    payload -= tensor.bytes.size();
    tensors.push_back(tensor);
  }
  if (payload != 0) return broken("the tensors do not fill the record");
  return tensors;
}

}  // namespace

uint64_t encoded_bytes(const Block& block) {
  uint64_t bytes = header_bytes(block.tensors.size(), block.tokens.size()) + sizeof(HeaderCheck) +
                   sizeof(RecordCheck);
  for (const Tensor& tensor : block.tensors) bytes += tensor.bytes.size();
  return bytes;
}

Result<std::vector<std::byte>> encode(const Block& block) {
  OUTRIDER_TRY(check_block(block));
  std::vector<std::byte> record(encoded_bytes(block));
  Writer out(record);
  Head head;
  head.tensors = static_cast<uint16_t>(block.tensors.size());
  head.tokens = static_cast<uint32_t>(block.tokens.size());
  head.depth = block.depth;
  head.record_bytes = record.size();
  head.ns = block.ns;
  head.id = block.id;
  head.parent = block.parent;
  out.put(head);
  for (const Tensor& tensor : block.tensors) {
    TableEntry entry;
    std::memcpy(entry.name, tensor.name.data(), tensor.name.size());
    entry.layers = tensor.layers;
    entry.layer_bytes = static_cast<uint32_t>(tensor.bytes.size() / tensor.layers);
    out.put(entry);
  }
  out.raw(block.tokens.data(), block.tokens.size() * sizeof(int32_t));
  out.put(HeaderCheck{hash64(out.written())});
  for (const Tensor& tensor : block.tensors) out.raw(tensor.bytes.data(), tensor.bytes.size());
  out.put(RecordCheck{hash128(out.written())});
  return record;
}

Result<RecordView> decode(std::span<const std::byte> record) {
  ByteReader in(record);
  const auto head = in.read<Head>();
  if (!head) return broken("shorter than a record's head");
  if (head->magic != k_magic) return broken("not a record");
  if (head->version != k_version) return broken("a record of another version");
  if (head->record_bytes != record.size()) return broken("a record of another size");
  if (head->tensors == 0 || head->tensors > limits::kv_record_tensors_max || head->tokens == 0 ||
      head->tokens > limits::kv_record_tokens_max) {
    return broken("a record's counts are out of bounds");
  }
  const auto table = in.take(uint64_t{head->tensors} * sizeof(TableEntry));
  if (!table) return broken("a record's table is cut off");
  const auto tokens = in.take(uint64_t{head->tokens} * sizeof(int32_t));
  if (!tokens) return broken("a record's tokens are cut off");
  const auto header = record.first(in.position());
  const auto header_check = in.read<HeaderCheck>();
  if (!header_check || *header_check != hash64(header)) return broken("a header's check sum");
  if (in.remaining() < sizeof(RecordCheck)) return broken("a record's check sum is cut off");
  RecordView view{head->ns, head->id, head->parent, head->depth, {}, {}};
  OUTRIDER_ASSIGN(view.tensors, decode_table(*table, in.remaining() - sizeof(RecordCheck)));
  for (TensorView& tensor : view.tensors) tensor.bytes = *in.take(tensor.bytes.size());
  const auto body = record.first(in.position());
  if (*in.read<RecordCheck>() != hash128(body)) return broken("a record's check sum");
  view.tokens.resize(head->tokens);
  std::memcpy(view.tokens.data(), tokens->data(), tokens->size());
  return view;
}

}  // namespace outrider::kvstore
