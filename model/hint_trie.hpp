#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/hint_counters.hpp"
#include "base/limits.hpp"
#include "model/draft_distribution.hpp"

/// What drafts expect a request to go on with: a tree of tokens that hangs from its committed text.
/// Everything that drafts inserts here, whenever it likes; the target takes the best path when it
/// plans a step. A hint decides nothing: the target's own sampler does, and a hint can only be
/// right, wrong, or of no use any more.
namespace outrider::model {

/// 64 bits of a text, token by token, so that draft and target know whether they speak of the same
/// prefix. Not for identity: a collision costs a wrong hint, no wrong token.
inline constexpr uint64_t k_empty_text = 0x9E37'79B9'7F4A'7C15;
uint64_t text_hash(uint64_t before, int32_t token);
uint64_t text_hash(uint64_t before, std::span<const int32_t> tokens);

/// One token of a hint. Parents come before their children.
struct HintBranch {
  int32_t parent = -1;  ///< Index of the token before it in the hint; -1: it follows the base.
  int32_t token = 0;
  uint8_t confidence = 0;  ///< 255 times the probability that it follows its parent.
  /// For those who verify by rejection; null: it was not drawn.
  std::shared_ptr<const DraftDistribution> drawn_from = {};
};

/// A tree of tokens that follows the first `base_length` tokens of prompt and output.
struct Hint {
  uint32_t base_length = 0;
  uint64_t base_hash = 0;  ///< text_hash of these tokens
  std::span<const HintBranch> branches;
  HintSource source = HintSource::other;
};

/// Tokens that the hints of one request may have: 8 paths of the greatest depth.
inline constexpr uint32_t k_hint_nodes_max = 256;
inline constexpr size_t k_hint_siblings_max = 32;  ///< looked through one by one
/// Tokens beyond the committed text that a hint may reach, and committed ones that a late hint is
/// compared with.
inline constexpr uint32_t k_hint_depth_max = limits::draft_depth_max;

/// The hints of one request. Plain value; not thread-safe.
class HintTrie {
 public:
  /// For a text of `length` tokens.
  HintTrie(uint32_t length, uint64_t hash);

  uint32_t length() const { return length_; }
  uint64_t hash() const { return nodes_[0].hash; }
  /// Tokens that are hinted at.
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()) - 1; }

  /// Takes what the hint says about tokens beyond the committed text. A late one is compared with
  /// what was committed since, and the rest of it still counts; one that continues a hint that is
  /// here continues it. Of a token that is here already each source keeps its highest confidence.
  HintOutcome insert(const Hint& hint);
  /// The text goes on with `token`: what follows it stays, all else goes.
  void commit(int32_t token);

  struct Step {
    int32_t token = 0;
    uint8_t confidence = 0;
    HintSource source = HintSource::other;
    std::shared_ptr<const DraftDistribution> drawn_from = {};

    friend bool operator==(const Step&, const Step&) = default;
  };
  /// From the committed text on, each time the child that is believed most, of several the first to
  /// come, as one of its sources is believed. `believe(source, confidence)` is the probability that
  /// such a hint comes true if those before it do. At most `depth` steps, appended to `out`.
  template <typename Believe>
  void best_path(uint32_t depth, const Believe& believe, std::vector<Step>& out) const {
    for (int32_t at = 0; depth > 0; --depth) {
      int32_t best = -1;
      Step step;
      float most = 0;
      for (int32_t c = node(at).first_child; c >= 0; c = node(c).next) {
        for_each_claim(node(c), [&](HintSource source, uint8_t confidence) {
          const float believed = believe(source, confidence);
          if (best >= 0 && believed <= most) return;
          best = c;
          most = believed;
          step = {node(c).token, confidence, source, node(c).drawn_from};
        });
      }
      if (best < 0) return;
      out.push_back(std::move(step));
      at = best;
    }
  }
  /// Calls `see(token, source, confidence, is_drawn)` for each that somebody says comes next.
  template <typename See>
  void for_each_next(const See& see) const {
    for (int32_t c = node(0).first_child; c >= 0; c = node(c).next) {
      for_each_claim(node(c), [&](HintSource source, uint8_t confidence) {
        see(node(c).token, source, confidence, node(c).drawn_from != nullptr);
      });
    }
  }
  /// The path of tokens that were drawn: of those that follow one text the first to come, later
  /// ones count as hints only. Which one that is does not depend on what was drawn, as verifying by
  /// rejection needs; nor does its length, but for the tokens before. Empty where nothing that was
  /// drawn follows the committed text. Who said so, and how sure, is left out.
  void drawn_path(uint32_t depth, std::vector<Step>& out) const;

 private:
  struct Node {
    int32_t token = 0;
    uint32_t depth = 0;  ///< tokens behind the committed text
    /// Confidence by source, at least 1; 0: it does not say so.
    std::array<uint8_t, k_hint_sources> claims{};
    int32_t first_child = -1;
    int32_t next = -1;  ///< sibling, in order of arrival
    uint64_t hash = 0;  ///< of the text that ends with it
    std::shared_ptr<const DraftDistribution> drawn_from = {};
  };
  /// A token committed of late, and the text before it.
  struct Past {
    int32_t token = 0;
    uint64_t hash_before = 0;
  };
  /// Where a token of a hint stands: a node, or so many tokens before the end of the committed
  /// text, or nowhere.
  struct Place {
    int32_t node = -1;
    uint32_t behind = 0;

    bool is_nowhere() const { return node < 0 && behind == 0; }
  };

  const Node& node(int32_t at) const { return nodes_[static_cast<size_t>(at)]; }
  template <typename Use>
  static void for_each_claim(const Node& node, const Use& use) {
    for (size_t source = 0; source < k_hint_sources; ++source) {
      if (node.claims[source] > 0) use(static_cast<HintSource>(source), node.claims[source]);
    }
  }
  Place find(uint32_t length, uint64_t hash) const;
  int32_t find_child(int32_t parent, int32_t token) const;
  bool may_draw(int32_t parent) const;
  int32_t add_child(int32_t parent, int32_t token);
  Place place(const Place& parent, const HintBranch& branch, HintSource source);

  uint32_t length_;
  std::vector<Node> nodes_;  ///< 0 is the root: the committed text.
  std::vector<Node> moved_;  ///< Work space of commit.
  std::vector<Past> past_;   ///< The last ones, oldest first.
};

}  // namespace outrider::model
