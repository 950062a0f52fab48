#include "link/nccl_upgrade.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "link/nccl_link.hpp"

namespace outrider::link {
namespace {

// Far from what users call their messages.
constexpr uint64_t k_offer_tag = ~uint64_t{0} - 16;
constexpr uint64_t k_yes_tag = k_offer_tag - 1;
constexpr uint64_t k_no_tag = k_offer_tag - 2;
constexpr uint32_t k_stream = 0;
constexpr size_t k_why_bytes_max = 256;
constexpr TimePoint k_no_wait{0};

struct Offer {
  NcclIdentity identity;
  NcclId id{};
};
static_assert(std::is_trivially_copyable_v<Offer> && sizeof(Offer) == 4 + 16 + 128, "no gaps");

struct Word {
  bool is_yes = false;
  std::string why;
};

std::vector<std::byte> bytes_of(const void* data, size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  return bytes;
}

Result<void> say(TensorLink& link, const Word& word, TimePoint by) {
  const size_t size = std::min(word.why.size(), k_why_bytes_max);
  return link.send(
      k_stream, {word.is_yes ? k_yes_tag : k_no_tag, Bytes(bytes_of(word.why.data(), size))}, by);
}

Result<Word> hear(TensorLink& link, TimePoint by) {
  const auto message = link.receive(k_stream, by);
  if (!message) return message.error();
  const auto text = message->bytes.view();
  if ((message->tag != k_yes_tag && message->tag != k_no_tag) || text.size() > k_why_bytes_max) {
    return fail(ErrorCode::corrupt, "no word on NCCL");
  }
  return Word{message->tag == k_yes_tag, "the other end: " + std::string(as_text(text))};
}

Error lost(TensorLink& link, const Error& error) {
  link.close();
  return fail(ErrorCode::unavailable, "moving a link to NCCL: " + error.message);
}

/// That all which is said fits.
bool is_wide_enough(const LinkSettings& settings) {
  return settings.message_bytes_max() >= std::max(sizeof(Offer), k_why_bytes_max);
}

/// A byte each way, in one group.
class Probe {
 public:
  explicit Probe(NcclRank& rank) : rank_(rank) {}
  /// Whether both are through. Of a rank that is ready.
  bool step() {
    if (!std::exchange(has_started_, true)) {
      rank_.start(k_transfers);
      return false;
    }
    if (!std::exchange(has_followed_, true)) {
      for (const NcclTransfer& transfer : k_transfers) rank_.follow(transfer);
    }
    return rank_.is_through(k_transfers[0].slot) && rank_.is_through(k_transfers[1].slot);
  }
  bool has_started() const { return has_started_; }

 private:
  static constexpr NcclTransfer k_transfers[] = {{true, 0, 1}, {false, limits::link_nccl_slots, 1}};
  NcclRank& rank_;
  bool has_started_ = false;
  bool has_followed_ = false;
};

/// Waits until it has joined and exchanged a byte: empty, or why it has not. `objection` may say
/// meanwhile why to stop.
std::string wait_for(NcclRank& rank, const Clock& clock, TimePoint by,
                     const std::function<std::string()>& objection) {
  Probe probe(rank);
  while (true) {
    const NcclState state = rank.state();
    if (state == NcclState::failed) return "NCCL: " + rank.error();
    if (state == NcclState::ready && probe.step()) return {};
    if (clock.now() >= by) {
      return probe.has_started() ? "no transfer in time" : "no communicator in time";
    }
    if (auto why = objection(); !why.empty()) return why;
    ::poll(nullptr, 0, 1);  // NCCL wakes nobody
  }
}

/// Joins until then, says how that went and hears how it went there.
Result<NcclUpgrade> settle(std::shared_ptr<TensorLink> link, const NcclTerms& terms,
                           const NcclId& id, uint32_t number, TimePoint by) {
  const TimePoint last_word = by + terms.patience / 4;
  std::optional<Result<Word>> other;
  const auto objection = [&]() -> std::string {
    if (!other) {
      auto word = hear(*link, k_no_wait);
      if (word || word.error().code != ErrorCode::deadline_exceeded) other = std::move(word);
    }
    if (!other) return {};
    if (!*other) return other->error().message;
    return (*other)->is_yes ? std::string() : (*other)->why;
  };
  auto rank = terms.nccl->join(id, {.rank = number});
  const std::string why_not =
      rank ? wait_for(**rank, *terms.setup.clock, by, objection) : rank.error().message;
  const auto said = say(*link, {why_not.empty(), why_not}, last_word);
  if (!said) other = Result<Word>(said.error());
  if (!other) other = hear(*link, last_word);
  if (*other && (*other)->is_yes && why_not.empty()) {
    auto moved = NcclLink::open({link, terms.nccl, std::move(*rank), number == 0}, terms.setup);
    if (!moved) return lost(*link, moved.error());
    return NcclUpgrade{std::move(*moved), {}};
  }
  if (rank) terms.nccl->retire(std::move(*rank));
  if (!*other) return lost(*link, other->error());
  return NcclUpgrade{std::move(link), why_not.empty() ? (*other)->why : why_not};
}

/// Why this end does not want it; empty: it does.
std::string objection(const Offer& offer, const NcclTerms& terms) {
  if (!terms.nccl) return "not configured, or no GPU";
  if (!is_wide_enough(terms.setup.settings)) return "its windows are too small";
  const NcclIdentity& own = terms.nccl->identity();
  // NCCL itself refuses any two that are not the same,
  if (own.version != offer.identity.version) {
    return "NCCL " + std::to_string(own.version) + ", not " +
           std::to_string(offer.identity.version);
  }
  // and two ranks on one GPU.
  if (own.device == offer.identity.device) return "the same GPU";
  return {};
}

}  // namespace

bool is_nccl_offer(const Message& message) {
  return message.tag == k_offer_tag;
}

Result<NcclUpgrade> offer_nccl(std::shared_ptr<TensorLink> link, const NcclTerms& terms) {
  if (!terms.nccl) return NcclUpgrade{std::move(link), "not configured, or no GPU"};
  if (!is_wide_enough(terms.setup.settings)) {
    return NcclUpgrade{std::move(link), "its windows are too small"};
  }
  const auto id = terms.nccl->new_id();
  if (!id) return NcclUpgrade{std::move(link), id.error().message};
  const TimePoint by = terms.setup.clock->now() + terms.patience;
  const Offer offer{terms.nccl->identity(), *id};
  const auto sent = link->send(k_stream, {k_offer_tag, Bytes(bytes_of(&offer, sizeof(offer)))}, by);
  if (!sent) return lost(*link, sent.error());
  const auto word = hear(*link, by);
  if (!word) return lost(*link, word.error());
  if (!word->is_yes) {
    terms.nccl->give_back(*id);
    return NcclUpgrade{std::move(link), word->why};
  }
  return settle(std::move(link), terms, *id, 0, by);
}

Result<NcclUpgrade> answer_nccl(std::shared_ptr<TensorLink> link, const Message& message,
                                const NcclTerms& terms) {
  const auto offer = ByteReader(message.bytes.view()).read<Offer>();
  if (!offer || message.bytes.size() != sizeof(Offer)) {
    return lost(*link, fail(ErrorCode::corrupt, "no offer"));
  }
  const std::string why_not = objection(*offer, terms);
  const TimePoint by = terms.setup.clock->now() + terms.patience;
  const auto said = say(*link, {why_not.empty(), why_not}, by);
  if (!said) return lost(*link, said.error());
  if (!why_not.empty()) return NcclUpgrade{std::move(link), why_not};
  return settle(std::move(link), terms, offer->id, 1, by);
}

Result<void> warm_up(Nccl& nccl, const Clock& clock, Duration patience) {
  NcclId id;
  OUTRIDER_ASSIGN(id, nccl.new_id());
  auto rank = nccl.join(id, {.rank = 0, .ranks = 1});
  if (!rank) return rank.error();
  const TimePoint by = clock.now() + patience;
  const std::string why_not = wait_for(**rank, clock, by, [] { return std::string(); });
  nccl.retire(std::move(*rank));
  if (!why_not.empty()) return fail(ErrorCode::unavailable, why_not);
  return {};
}

}  // namespace outrider::link
