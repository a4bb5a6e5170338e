#include "tools/kiln/model_like.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace kiln::cli {
namespace {

constexpr double kBase = 5e5, kNoise = 0.7;
constexpr double kSink = 11, kStripe = 6;  // of a logit
constexpr int64_t kSinkTokens = 4, kStripeTokens = 32, kStripePer = 4096;

// cos and sin of each position's angle of each pair of channels.
struct Turns {
  int64_t pairs;
  std::vector<float> cos, sin;
  Turns(int64_t positions, int64_t pairs) : pairs(pairs) {
    for (int64_t i = 0; i < positions; ++i)
      for (int64_t p = 0; p < pairs; ++p) {
        const double angle = static_cast<double>(i) *
                             std::pow(kBase, -static_cast<double>(p) / static_cast<double>(pairs));
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
  }
};

// Noise is drawn once; rows begin at random places of it.
class Noise {
 public:
  explicit Noise(std::mt19937_64& random) : random_(random), values_(1 << 16) {
    std::normal_distribution<float> normal;
    for (float& value : values_) value = normal(random);
  }
  const float* row(int64_t width) {
    return values_.data() + random_() % (values_.size() - static_cast<size_t>(width));
  }

 private:
  std::mt19937_64& random_;
  std::vector<float> values_;
};

// A head's common vector: a phase for each pair.
std::vector<float> vector_of(const std::vector<double>& phases, double amplitude) {
  const size_t pairs = phases.size();
  std::vector<float> vector(2 * pairs);
  for (size_t p = 0; p < pairs; ++p) {
    vector[p] = static_cast<float>(amplitude * std::cos(phases[p]));
    vector[pairs + p] = static_cast<float>(amplitude * std::sin(phases[p]));
  }
  return vector;
}

class Writer {
 public:
  Writer(const Turns& turns, Noise& noise) : turns_(turns), noise_(noise) {}

  // A row of the array: the vector with noise, turned to `position`; the slowest pair's first
  // channel raised.
  void write(Array& to, int64_t row, const std::vector<float>& vector, int64_t position,
             double raised) {
    const int64_t pairs = turns_.pairs, width = to.shape().back();
    const float* noise = noise_.row(2 * pairs);
    const float *cos = &turns_.cos[position * pairs], *sin = &turns_.sin[position * pairs];
    for (int64_t p = 0; p < pairs; ++p) {
      const float a = vector[p] + static_cast<float>(kNoise) * noise[p];
      const float b = vector[pairs + p] + static_cast<float>(kNoise) * noise[pairs + p];
      double first = a * cos[p] - b * sin[p];
      if (p == pairs - 1) first += raised;
      to.set(row * width + p, first);
      to.set(row * width + pairs + p, a * sin[p] + b * cos[p]);
    }
  }

 private:
  const Turns& turns_;
  Noise& noise_;
};

}  // namespace

void fill_model_like(Array& q, Array& k, uint64_t seed) {
  const int64_t batch = q.shape()[0], heads = q.shape()[1], seq = q.shape()[2];
  const int64_t heads_kv = k.shape()[1], seq_kv = k.shape()[2], pairs = q.shape()[3] / 2;
  std::mt19937_64 random(seed);
  Noise noise(random);
  const Turns turns(std::max(seq, seq_kv), pairs);
  Writer writer(turns, noise);
  const double root = std::sqrt(static_cast<double>(2 * pairs));
  // The amplitude of a pair by which the mean logit falls by 1 for each factor e of distance.
  const double unit = std::sqrt(std::log(kBase) / static_cast<double>(pairs) * root);
  std::uniform_real_distribution<double> angle(0, 2 * std::acos(-1.0));
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<double> phases;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t group = heads / heads_kv, kv_head = h / group;
      if (h % group == 0) {
        phases.clear();
        for (int64_t p = 0; p < pairs; ++p) phases.push_back(angle(random));
        std::vector<double> raised(static_cast<size_t>(seq_kv));
        for (int64_t j = 0; j < std::min(kSinkTokens, seq_kv); ++j) raised[j] = kSink * root / 4;
        const int64_t stripes = std::max<int64_t>(1, (1 + h % 4) * seq_kv / kStripePer);
        for (int64_t stripe = 0; seq_kv > kStripeTokens && stripe < stripes; ++stripe) {
          const auto at = static_cast<int64_t>(random() % (seq_kv - kStripeTokens));
          std::fill_n(raised.begin() + at, kStripeTokens, kStripe * root / 4);
        }
        const std::vector<float> vector = vector_of(phases, unit);
        for (int64_t j = 0; j < seq_kv; ++j)
          writer.write(k, (b * heads_kv + kv_head) * seq_kv + j, vector, j, raised[j]);
      }
      const double alpha = 0.85 + 0.4 * static_cast<double>(h) /
                                      static_cast<double>(std::max<int64_t>(1, heads - 1));
      // Looking back: the queries of every fourth head stand earlier than they are.
      const int64_t back = h % 4 == 3 ? seq_kv / 8 : 0;
      const std::vector<float> vector = vector_of(phases, alpha * unit);
      for (int64_t i = 0; i < seq; ++i) {
        const int64_t position = std::max<int64_t>(i + seq_kv - seq - back, 0);
        writer.write(q, (b * heads + h) * seq + i, vector, position, 4);
      }
    }
  }
}

}  // namespace kiln::cli
