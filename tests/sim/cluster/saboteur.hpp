#pragma once

#include <cstdint>
#include <map>

#include "tests/sim/cluster/cluster.hpp"

namespace outrider::sim::cluster {

/// Plants the bugs that are not in an engine: it sits at the network and at lines.
class Saboteur {
 public:
  Saboteur(Cluster& cluster, Random& random, PlantedBug bug)
      : cluster_(cluster), random_(random), bug_(bug) {
    if (bug_ != PlantedBug::foreign_block) return;
    cluster_.lines().on_send = [this](link::Message& message) { exchange_block(message); };
  }

  /// False: the message vanishes.
  bool on_send(const Parcel& parcel);

 private:
  void say_again(const Parcel& parcel);
  void exchange_block(link::Message& message);

  Cluster& cluster_;
  Random& random_;
  PlantedBug bug_;
  std::map<uint64_t, uint32_t> generations_;  ///< Submitted last, by session.
  link::Bytes block_;                         ///< Handed over before.
};

}  // namespace outrider::sim::cluster
