#include "model/kv_probe_text.hpp"

namespace outrider::model {
namespace {

constexpr std::string_view k_text =
    R"(The ferry to Holm leaves at twenty past six in winter, when the harbour is still dark and the gulls sit in
rows along the wall as if they were waiting for it as well. Marta had taken it every working day for eleven
years. She knew which of the benches were dry after rain, which of the deck hands would lend her his
newspaper, and how many minutes lay between the first bell and the moment at which the engine made the
windows hum. On this morning none of that helped her, because the ferry was not there. In its place lay a
long grey barge without a name, and on the barge stood a man in a yellow coat who was counting crates aloud,
in a language that she had not heard since her childhood.

"Good morning," she said when he came to the end of a row. "Where is the boat?"
"Repairs," said the man. "Two days, perhaps three. The bearing of the shaft is worn, and the new one has to
come from the mainland. You can ride with us if you do not mind the cold. We go past Holm in any case."
"What does it cost?"
"Nothing, if you can count. I have lost my place twice since you came."
So she counted: forty crates of apples, twelve of candles, and one, smaller than the others, on which
somebody had written in chalk that it must never be turned upside down.

/// Returns the position of the first value in `sorted` that is not below `wanted`.
size_t lower_bound(const std::vector<int>& sorted, int wanted) {
  size_t first = 0;
  size_t count = sorted.size();
  while (count > 0) {
    const size_t half = count / 2;
    if (sorted[first + half] < wanted) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

| month    | passengers | crates | days lost |
|----------|------------|--------|-----------|
| January  | 1204       | 310    | 4         |
| February | 1188       | 295    | 6         |
| March    | 1467       | 342    | 1         |
| April    | 1530       | 377    | 0         |

Water is at its densest at about four degrees. That is why a lake freezes from the top: in autumn the
surface cools and sinks until the whole lake has reached that temperature, and after that the colder water
stays above, where it turns to ice. The ice is lighter still and floats, and it keeps the wind from the
water below. A pond of two metres' depth therefore rarely freezes to its bottom, and the fish in it live
through the winter, slowly, on what they ate in summer.

To repair the pump, first close both valves and wait until the gauge shows zero. Loosen the four bolts of
the cover crosswise, half a turn each, so that it does not bend. Take out the old seal and clean the groove
with a dry cloth; do not use a knife. Put a thin film of grease on the new seal, lay it in without
stretching it, and tighten the bolts in the same order in which you loosened them. Open the lower valve
slowly. If water comes out at the cover, close it again and check whether a grain of sand lies under the
seal.
)";

constexpr KvNeedle k_needles[k_kv_needles] = {
    {" The number of the red locker is 7391 4826.", "\n\nThe number of the red locker is",
     " 7391 4826"},
    {" The pilot's telephone number is 5502 1847.", "\nThe pilot's telephone number is",
     " 5502 1847"},
    {" The last crate weighs 3168 9420 grams.", "\nThe last crate weighs", " 3168 9420"},
};

}  // namespace

std::string_view kv_probe_text() {
  return k_text;
}

const KvNeedle (&kv_needles())[k_kv_needles] {
  return k_needles;
}

}  // namespace outrider::model
