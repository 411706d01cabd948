package kv

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestZipf: the frequencies of the most frequent numbers are those of the distribution: 1/k^skew divided by the sum of all.
func TestZipf(t *testing.T) {
	const n, draws = 100, 200_000
	z := newZipf(n, rand.New(rand.NewPCG(1, 2)))
	var counts [n]float64
	for range draws {
		counts[z.next()]++
	}
	assert.InDelta(t, 1/z.zeta, counts[0]/draws, 0.01)
	assert.InDelta(t, 0.5/z.zeta, counts[1]/draws, 0.01)
	first := 0.0
	for _, c := range counts[:10] {
		first += c
	}
	assert.InDelta(t, 2.95/z.zeta, first/draws, 0.03)
	assert.NotZero(t, counts[n-1])
}

func TestValue(t *testing.T) {
	k := key(7)
	assert.Len(t, k, keyLen)
	for _, n := range []int{1, keyLen, 100} {
		value := make([]byte, n)
		fillValue(value, k)
		assert.True(t, checkValue(value, k, n))
		assert.False(t, checkValue(value, k, n+1))
		value[0]++
		assert.False(t, checkValue(value, k, n))
	}
	_, err := ParseWorkload("D")
	assert.Error(t, err)
}

// TestRedis_Replies: valid and malformed replies.
func TestRedis_Replies(t *testing.T) {
	for reply, want := range map[string]string{
		"$5\r\nvalue\r\n":           "value",
		"$0\r\n\r\n":                "",
		"$-1\r\n":                   "no key",
		"-ERR it does not work\r\n": "ERR it does not work",
		"$5\r\nvalue\n\n":           "malformed",
		"$5\r\nval":                 "EOF",
		"$99999999999\r\n":          "malformed",
		"$-2\r\n":                   "malformed",
		"+OK\r\n":                   "malformed",
		"\r\n":                      "malformed",
		"$5\n":                      "malformed",
		"":                          "EOF",
		strings.Repeat("x", 10000):  "buffer full",
	} {
		here, there := net.Pipe()
		go func() {
			in := bufio.NewReader(there)
			for range 5 { // lines of GET
				_, _ = in.ReadString('\n')
			}
			_, _ = io.WriteString(there, reply)
			_ = there.Close()
		}()
		r := &redis{conn: here, in: bufio.NewReader(here)}
		value, err := r.get("key", make([]byte, 100))
		if err != nil {
			assert.ErrorContains(t, err, want, "%.20q", reply)
		} else {
			assert.Equal(t, want, string(value), "%.20q", reply)
		}
		require.NoError(t, r.close())
	}
}

// serve returns a function that starts f on a goroutine instead of a process.
func serve(f func(context.Context, net.Conn) error) func() (net.Conn, io.Closer, error) {
	return func() (net.Conn, io.Closer, error) {
		here, there := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- f(context.Background(), there) }()
		return here, closer(func() error {
			_ = here.Close()
			return <-ended
		}), nil
	}
}

type closer func() error

func (c closer) Close() error { return c() }

func TestStudy(t *testing.T) {
	testenv.SkipRace(t, "clients read the memory of the server while it writes")
	s := &Study{Workloads: Workloads(), Stores: Stores(), Clients: []int{2}, Records: 100, Value: 50,
		Time: 20 * time.Millisecond, Rounds: 1, Server: serve(ServeServer), Client: serve(ServeClient)}
	require.NoError(t, s.Check())
	rows, missing, err := s.Run(t.Context(), func(string) {})
	require.NoError(t, err)
	assert.Len(t, rows, (len(s.Stores)-len(missing))*3)
	for _, r := range rows {
		assert.Positive(t, r.Rate, "%+v", r)
		assert.Positive(t, r.P50, "%+v", r)
		assert.GreaterOrEqual(t, r.P99, r.P50, "%+v", r)
		assert.Equal(t, len(missing) == 0, r.RateRatio > 0, "%+v", r)
	}
	var missed *MissingError
	for _, err := range missing {
		assert.ErrorAs(t, err, &missed)
	}
}

// TestSetRatios: values that are too small to be measured have no ratio.
func TestSetRatios(t *testing.T) {
	rows := []Row{{Store: storeOne, Rate: 6, CPU: 4}, {Store: storeReplicated, Rate: 3}, {Store: storeRedis, Rate: 2, CPU: 8}}
	setRatios(rows)
	assert.Equal(t, []float64{3, 2}, []float64{rows[0].RateRatio, rows[0].CPURatio})
	assert.Equal(t, []float64{1.5, 0}, []float64{rows[1].RateRatio, rows[1].CPURatio})
	rows = []Row{{Store: storeOne, Rate: 6, CPU: 4}, {Store: storeRedis}}
	setRatios(rows)
	assert.Zero(t, rows[0].RateRatio+rows[0].CPURatio+rows[1].RateRatio+rows[1].CPURatio)
}

// TestMeasure_OneOperation: also in a very short time at least one operation is recorded.
func TestMeasure_OneOperation(t *testing.T) {
	j := &job{Records: minRecords, Value: 8, Time: 1}
	o, err := j.newMeter().measure(t.Context(), nothing{})
	require.NoError(t, err)
	assert.Positive(t, hdrhistogram.Import(o.Latency).TotalCount())
	assert.Positive(t, o.Elapsed)
}

// nothing is a store without effect.
type nothing struct{}

func (nothing) get(_ string, buf []byte) ([]byte, error) { return buf, nil }
func (nothing) put(string, []byte) error                 { return nil }
func (nothing) close() error                             { return nil }

func TestStudy_Check(t *testing.T) {
	good := Study{Workloads: Workloads(), Stores: Stores(), Clients: []int{1}, Records: 100, Value: 50, Time: time.Second, Rounds: 1}
	require.NoError(t, good.Check())
	for name, change := range map[string]func(s *Study){
		"twice":   func(s *Study) { s.Stores = []string{storeOne, storeOne} },
		"store":   func(s *Study) { s.Stores = []string{"memcached"} },
		"clients": func(s *Study) { s.Clients = []int{0} },
		"nothing": func(s *Study) { s.Workloads = nil },
		"records": func(s *Study) { s.Records = 1 },
		"values":  func(s *Study) { s.Value = maxValue + 1 },
		"rounds":  func(s *Study) { s.Rounds = 0 },
		"row":     func(s *Study) { s.Time = 0 },
	} {
		s := good
		change(&s)
		assert.ErrorContains(t, s.Check(), name)
	}
}
