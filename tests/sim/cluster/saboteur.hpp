#pragma once

#include <cstdint>
#include <map>

#include "tests/sim/cluster/cluster.hpp"

namespace outrider::sim::cluster {

/// Plants the bugs that are not in an engine: it sits at the network.
class Saboteur {
 public:
  Saboteur(Cluster& cluster, Random& random, PlantedBug bug)
      : cluster_(cluster), random_(random), bug_(bug) {}

  /// False: the message vanishes.
  bool on_send(const Parcel& parcel);

 private:
  void say_again(const Parcel& parcel);

  Cluster& cluster_;
  Random& random_;
  PlantedBug bug_;
  std::map<uint64_t, uint32_t> generations_;  ///< Submitted last, by session.
};

}  // namespace outrider::sim::cluster
