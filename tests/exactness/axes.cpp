#include "tests/exactness/axes.hpp"

#include <sstream>
#include <vector>

#include "kernels/kv_kind_flags.hpp"

namespace outrider::exactness {

std::span<const kernels::KvKinds> all_kv_kinds() {
  using enum kernels::KvKind;
  static const auto all = [] {
    std::vector<kernels::KvKinds> kinds = {{q8_0, q4_0}, {q4_0, q4_0, true}, {q8_0, nf4, true}};
    for (const kernels::KvKind kind : kernels::k_kv_kinds) kinds.push_back({kind, kind});
    return kinds;
  }();
  return all;
}

Axes reference_axes(kernels::Isa isa, const kernels::KvKinds& kv_kinds, uint32_t local_window) {
  Axes axes;
  axes.isa = isa;
  axes.kv_kinds = kv_kinds;
  axes.local_window = local_window;
  return axes;
}

Axes random_axes(Random& random, std::span<const kernels::Isa> isas,
                 const kernels::KvKinds& kv_kinds, uint32_t local_window) {
  const auto maybe = [&](float probability, float value) {
    return random.chance(probability) ? value * random.uniform() : 0.0f;
  };
  Axes axes;
  axes.kv_kinds = kv_kinds;
  axes.local_window = local_window;
  // The last is the fastest and what users run: half of all batches.
  axes.isa =
      random.chance(0.5f) ? isas.back() : isas[random.below(static_cast<uint32_t>(isas.size()))];
  axes.threads = 1 + random.below(3);
  axes.batch_tokens = 1 + random.below(random.chance(0.3f) ? 16 : 300);
  if (random.chance(0.5f)) {
    axes.decode_plan.contexts = {random.below(40), 40 + random.below(60)};
    for (uint32_t& rows : axes.decode_plan.rows) rows = random.below(60);
  }
  axes.sequences = random.chance(0.3f) ? 1 + random.below(6) : 32;
  axes.block_tokens = 16u << random.below(3);
  axes.spare_blocks = random.chance(0.5f) ? random.below(12) : 512;
  axes.arrival = random.chance(0.3f) ? 1.0f : 0.1f + 0.9f * random.uniform();
  axes.prefix_caching = random.chance(0.8f);
  axes.store = axes.prefix_caching && random.chance(0.5f);
  if (axes.store) axes.block_tokens = 16;  // so that batches find each other's blocks
  axes.restart_store = axes.store && random.chance(0.2f);
  axes.evict = maybe(0.5f, 0.3f);
  axes.drop = maybe(0.2f, 0.05f);
  axes.preempt_all = maybe(0.4f, 0.1f);
  axes.rechunk = maybe(0.5f, 0.3f);
  axes.rethread = maybe(0.3f, 0.2f);
  axes.park = maybe(0.4f, 0.3f);
  axes.cancel = maybe(0.4f, 0.3f);
  axes.resume = maybe(0.5f, 1.0f);
  axes.draft_depth = random.chance(0.6f) ? 1 + random.below(12) : 0;
  axes.fixed_depth = random.chance(0.6f);
  axes.rows_are_dear = !axes.fixed_depth && random.chance(0.5f);
  axes.ngram = random.chance(0.5f);
  axes.hint = maybe(0.7f, 1.0f);
  axes.draft_model = axes.draft_depth > 0 && random.chance(0.5f);
  axes.draft_window = axes.draft_model && random.chance(0.5f) ? 1 + random.below(8) : 0;
  return axes;
}

std::string describe(const Axes& a) {
  std::ostringstream out;
  out << kernels::isa_name(a.isa) << ", " << a.threads << " threads, batch_tokens "
      << a.batch_tokens << ", " << model::to_string(a.decode_plan) << ", sequences " << a.sequences
      << ", block_tokens " << a.block_tokens << ", kv " << kernels::kv_kinds_text(a.kv_kinds)
      << ", window " << a.local_window << ", spare_blocks " << a.spare_blocks << ", prefix caching "
      << (a.prefix_caching ? "on" : "off") << ", store "
      << (a.restart_store ? "restarted"
          : a.store       ? "on"
                          : "off")
      << ", drop " << a.drop << ", arrival " << a.arrival << ", evict " << a.evict
      << ", preempt_all " << a.preempt_all << ", rechunk " << a.rechunk << ", rethread "
      << a.rethread << ", park " << a.park << ", draft_depth " << a.draft_depth
      << (a.fixed_depth     ? " fixed"
          : a.rows_are_dear ? " chosen, rows are dear,"
                            : " chosen")
      << (a.ngram ? " ngram" : "") << (a.draft_model ? " draft model" : "") << ", draft window "
      << a.draft_window << ", hint " << a.hint << ", cancel " << a.cancel << ", resume "
      << a.resume;
  return out.str();
}

}  // namespace outrider::exactness
