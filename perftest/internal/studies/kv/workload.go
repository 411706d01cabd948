package kv

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
)

// Workload is a mixture of reads and updates.
type Workload struct {
	Name  string
	Reads int // in percent; the others are updates
}

// Workloads are those of YCSB: update heavy, read mostly, read only.
func Workloads() []Workload { return []Workload{{"A", 50}, {"B", 95}, {"C", 100}} }

// ParseWorkload returns the workload with a name, in upper or lower case.
func ParseWorkload(name string) (Workload, error) {
	for _, w := range Workloads() {
		if strings.EqualFold(w.Name, name) {
			return w, nil
		}
	}
	return Workload{}, fmt.Errorf("workload %q: there are A, B, C", name)
}

// skew is the constant of the Zipf distribution in YCSB.
const skew = 0.99

// zipf returns numbers below n; 0 is the most frequent. It uses the method of Gray et al., Quickly Generating
// Billion-Record Synthetic Databases, SIGMOD 1994, section 3.2, as YCSB does. Package rand has no skew below 1.
type zipf struct {
	n, zeta, alpha, eta float64
	r                   *rand.Rand
}

// minRecords is the minimum number for which the method is defined, with several records to choose from.
const minRecords = 10

func newZipf(n int, r *rand.Rand) *zipf {
	z := &zipf{n: float64(n), alpha: 1 / (1 - skew), r: r}
	for i := 1; i <= n; i++ {
		z.zeta += math.Pow(float64(i), -skew)
	}
	z.eta = (1 - math.Pow(2/z.n, 1-skew)) / (1 - (1+math.Pow(2, -skew))/z.zeta)
	return z
}

func (z *zipf) next() int {
	u := z.r.Float64()
	switch v := u * z.zeta; {
	case v < 1:
		return 0
	case v < 1+math.Pow(2, -skew):
		return 1
	}
	return min(int(z.n*math.Pow(z.eta*u-z.eta+1, z.alpha)), int(z.n)-1)
}

// key returns the key of the record with rank i by frequency: the hash of the rank, as in YCSB, so that frequently used
// records are not neighbours.
func key(i int) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d", i)
	return fmt.Sprintf("user%020d", h.Sum64())
}

// keyLen is the length of all keys in bytes.
const keyLen = 24

// fillValue fills a value for a key. checkValue reports whether a value belongs to that key.
func fillValue(value []byte, key string) {
	for n := copy(value, key); n < len(value); n++ {
		value[n] = 'x'
	}
}

func checkValue(value []byte, key string, n int) bool {
	return len(value) == n && strings.HasPrefix(key, string(value[:min(n, len(key))]))
}
