package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// colour is an enum of a type of its own.
type colour int

func (c colour) Grammar() string              { return "red or blue" }
func (c colour) MarshalText() ([]byte, error) { return []byte([]string{"red", "blue"}[c]), nil }
func (c *colour) UnmarshalText(b []byte) error {
	switch string(b) {
	case "red":
		*c = 0
	case "blue":
		*c = 1
	default:
		return errors.New("no such colour")
	}
	return nil
}

// half lacks Grammar, so it would be read as a number.
type half uint8

func (*half) UnmarshalText([]byte) error { return nil }

type hidden struct {
	Secret bool `env:"SECRET"`
}

type flow struct {
	Window uint16  `env:"WINDOW" default:"512" doc:"Messages on the way."`
	Factor float64 `env:"FACTOR" doc:"Share of the window that is left when credits are returned."`
}

func (f *flow) Validate() error {
	if f.Factor > 1 {
		return errors.New("FACTOR is above 1")
	}
	return nil
}

type sample struct {
	hidden            // not exported, so not in the environment
	Base              // promoted without a prefix
	Depth    int      `env:"TX_DEPTH" default:"256" doc:"Send queue length."`
	Small    int8     `env:"SMALL"`
	Seg      MemSize  `env:"SEG_SIZE" default:"8k" doc:"Bounce buffer."`
	Limit    MemSize  `env:"LIMIT"`
	Timeout  duration `env:"TIMEOUT"`
	TLS      List     `env:"TLS" doc:"Transports."`
	Inline   Ternary  `env:"INLINE"`
	Mode     string   `env:"MODE" enum:"poll,sleep,Both" default:"poll"`
	Paint    colour   `env:"PAINT"`
	Label    string   `env:"LABEL"`
	Names    []string `env:"NAMES"`
	FC       flow     `env:"FC"`
	Internal int      // no tag: not in the environment
}

type duration = time.Duration

// Base is an embedded table.
type Base struct {
	Verbose bool `env:"VERBOSE" doc:"Say more."`
}

func (s *sample) Validate() error {
	if s.Depth > 1<<20 {
		return fmt.Errorf("TX_DEPTH %d is above %d", s.Depth, 1<<20)
	}
	return nil
}

func tableOf(s *sample) Table { return Table{Prefix: "RC", Doc: "rc transport", Config: s} }

func TestFromEnv_AllTypes(t *testing.T) {
	s := sample{Internal: 5, Label: "kept"}
	err := FromEnv([]string{
		"PATH=/bin", "UCX_TLS=rc", "GUCX", "=", "GUCX_RC_TX_DEPTH=0x200", "GUCX_RC_SMALL=-128", "GUCX_RC_SEG_SIZE=1m",
		"GUCX_RC_LIMIT=inf", "GUCX_RC_TIMEOUT=1.5s", "GUCX_RC_TLS=^tcp", "GUCX_RC_INLINE=try", "GUCX_RC_MODE=BOTH",
		"GUCX_RC_PAINT=blue", "GUCX_RC_NAMES=a,b", "GUCX_RC_FC_WINDOW=7", "GUCX_RC_FC_FACTOR=0.25", "GUCX_RC_VERBOSE=y",
	}, tableOf(&s))
	require.NoError(t, err)
	assert.Equal(t, sample{
		Base: Base{Verbose: true}, Depth: 512, Small: -128, Seg: 1 << 20, Limit: MemInf, Timeout: 1500 * time.Millisecond,
		TLS: Deny("tcp"), Inline: Try, Mode: "Both", Paint: 1, Label: "kept", Names: []string{"a", "b"},
		FC: flow{Window: 7, Factor: 0.25}, Internal: 5,
	}, s)
}

func TestFromEnv_LastOneCountsAndEqualsSignsStay(t *testing.T) {
	var s sample
	require.NoError(t, FromEnv([]string{"GUCX_RC_LABEL=x", "GUCX_RC_LABEL=a=b=c", "GUCX_RC_NAMES="}, tableOf(&s)))
	assert.Equal(t, "a=b=c", s.Label)
	assert.Nil(t, s.Names)
}

func TestFromEnv_UnknownName(t *testing.T) {
	var s sample
	err := FromEnv([]string{"GUCX_RC_TX_DETPH=1"}, tableOf(&s))
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "GUCX_RC_TX_DETPH", e.Name)
	assert.Equal(t, "GUCX_RC_TX_DEPTH", e.Nearest)
	assert.Equal(t, "GUCX_RC_TX_DETPH: unknown name, the nearest is GUCX_RC_TX_DEPTH", err.Error())

	err = FromEnv([]string{"GUCX_ANY=1"})
	assert.EqualError(t, err, "GUCX_ANY: unknown name")
}

func TestFromEnv_BadValues(t *testing.T) {
	for _, tt := range []struct{ entry, want string }{
		{"GUCX_RC_TX_DEPTH=abc", `GUCX_RC_TX_DEPTH="abc": not in the grammar: want integer`},
		{"GUCX_RC_TX_DEPTH=", `GUCX_RC_TX_DEPTH="": not in the grammar: want integer`},
		{"GUCX_RC_SMALL=128", `GUCX_RC_SMALL="128": out of range: want integer`},
		{"GUCX_RC_FC_WINDOW=-1", `GUCX_RC_FC_WINDOW="-1": not in the grammar: want unsigned integer`},
		{"GUCX_RC_FC_WINDOW=65536", `GUCX_RC_FC_WINDOW="65536": out of range: want unsigned integer`},
		{"GUCX_RC_FC_FACTOR=nan", `GUCX_RC_FC_FACTOR="nan": not in the grammar: want number`},
		{"GUCX_RC_FC_FACTOR=1e999", `GUCX_RC_FC_FACTOR="1e999": out of range: want number`},
		{"GUCX_RC_FC_FACTOR=", `GUCX_RC_FC_FACTOR="": not in the grammar: want number`},
		{"GUCX_RC_VERBOSE=try", `GUCX_RC_VERBOSE="try": not in the grammar: want y or n`},
		{"GUCX_RC_MODE=never", `GUCX_RC_MODE="never": not in the grammar: want one of poll, sleep, Both`},
		{"GUCX_RC_PAINT=green", `GUCX_RC_PAINT="green": no such colour: want red or blue`},
		{"GUCX_RC_SEG_SIZE=8z", `GUCX_RC_SEG_SIZE="8z": not in the grammar: want ` + MemSize(0).Grammar()},
		{"GUCX_RC_TIMEOUT=1h", `GUCX_RC_TIMEOUT="1h": not in the grammar: want ` + durationGrammar},
		{"GUCX_RC_TLS=a,,b", `GUCX_RC_TLS="a,,b": not in the grammar: want ` + List{}.Grammar()},
		{"GUCX_RC_INLINE=?", `GUCX_RC_INLINE="?": not in the grammar: want ` + Auto.Grammar()},
	} {
		t.Run(tt.entry, func(t *testing.T) {
			var s sample
			assert.EqualError(t, FromEnv([]string{tt.entry}, tableOf(&s)), tt.want)
		})
	}
}

func TestFromEnv_TellsAllAndChangesNothing(t *testing.T) {
	s, before := sample{Depth: 9}, sample{Depth: 9}
	err := FromEnv([]string{"GUCX_RC_TX_DEPTH=1", "GUCX_RC_SMALL=x", "GUCX_NO=1", "GUCX_RC_FC_WINDOW=y"}, tableOf(&s))
	require.Error(t, err)
	assert.Equal(t, before, s)
	parts := strings.Split(err.Error(), "; ")
	require.Len(t, parts, 3)
	for i, name := range []string{"GUCX_NO", "GUCX_RC_FC_WINDOW", "GUCX_RC_SMALL"} {
		assert.True(t, strings.HasPrefix(parts[i], name), "sorted by name: %q", parts[i])
	}
}

func TestFromEnv_Validate(t *testing.T) {
	s, before := sample{}, sample{}
	err := FromEnv([]string{"GUCX_RC_TX_DEPTH=2000000", "GUCX_RC_FC_FACTOR=2"}, tableOf(&s))
	assert.EqualError(t, err, "GUCX_RC_*: FACTOR is above 1; TX_DEPTH 2000000 is above 1048576")
	assert.Equal(t, before, s)
	s.FC.Factor = 3 // a value that the program has set is checked too
	assert.ErrorContains(t, FromEnv(nil, Table{Prefix: "RC", Config: &s}), "GUCX_RC_*: FACTOR is above 1")
}

func TestFromEnv_SeveralTables(t *testing.T) {
	var a, b struct {
		X int `env:"X"`
	}
	require.NoError(t, FromEnv([]string{"GUCX_X=1", "GUCX_B_X=2"}, Table{Config: &a}, Table{Prefix: "B", Config: &b}))
	assert.Equal(t, 1, a.X)
	assert.Equal(t, 2, b.X)
	err := FromEnv(nil, Table{Config: &a}, Table{Config: &b})
	assert.EqualError(t, err, "config: GUCX_X is in two tables")
}

func TestFromEnv_MistakesOfTheProgram(t *testing.T) {
	var halfValue struct {
		H half `env:"H"`
	}
	var channel struct {
		C chan int `env:"C"`
	}
	var badDefault struct {
		N int `env:"N" default:"many"`
	}
	var inner struct {
		In struct {
			F float32 `env:"F"`
		} `env:"IN"`
	}
	for name, tt := range map[string]struct {
		config any
		want   string
	}{
		"nil":         {nil, "no pointer to a struct"},
		"a struct":    {sample{}, "no pointer to a struct"},
		"nil pointer": {(*sample)(nil), "no pointer to a struct"},
		"type":        {&channel, "field C: type chan int"},
		"grammar":     {&halfValue, "field H: type config.half has UnmarshalText but is no Value"},
		"default":     {&badDefault, `field N: default "many": not in the grammar (integer)`},
		"nested type": {&inner, "field F: type float32"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ErrorContains(t, FromEnv(nil, Table{Prefix: "T", Config: tt.config}), tt.want)
			assert.ErrorContains(t, Print(&bytes.Buffer{}, PrintOptions{}, Table{Config: tt.config}), tt.want)
		})
	}
}

func TestPrint_Plain(t *testing.T) {
	s := sample{TLS: Deny("tcp"), Label: "it's two words", Names: []string{"a", "b"}}
	var out bytes.Buffer
	require.NoError(t, Print(&out, PrintOptions{}, tableOf(&s)))
	assert.Equal(t, `GUCX_RC_VERBOSE=n
GUCX_RC_TX_DEPTH=256
GUCX_RC_SMALL=0
GUCX_RC_SEG_SIZE=8k
GUCX_RC_LIMIT=auto
GUCX_RC_TIMEOUT=auto
GUCX_RC_TLS=^tcp
GUCX_RC_INLINE=auto
GUCX_RC_MODE=poll
GUCX_RC_PAINT=red
GUCX_RC_LABEL='it'\''s two words'
GUCX_RC_NAMES=a,b
GUCX_RC_FC_WINDOW=512
GUCX_RC_FC_FACTOR=0
`, out.String())
}

func TestPrint_DocsAndFilter(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Print(&out, PrintOptions{Docs: true, Filter: "factor"}, tableOf(&sample{}), tableOf(&sample{})))
	one := `#
# rc transport
#
#
# Share of the window that is left when credits are returned.
# Syntax: number.
#
GUCX_RC_FC_FACTOR=0

`
	assert.Equal(t, one+one, out.String())
	out.Reset()
	require.NoError(t, Print(&out, PrintOptions{Docs: true, Filter: "nothing"}, tableOf(&sample{})))
	assert.Empty(t, out.String())
}

func TestPrint_BreaksLongDocs(t *testing.T) {
	var c struct {
		N int `env:"N" doc:"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb cc ddddddddddddddddddddddd"`
	}
	var out bytes.Buffer
	require.NoError(t, Print(&out, PrintOptions{Docs: true}, Table{Config: &c}))
	for line := range strings.Lines(out.String()) {
		assert.LessOrEqual(t, len(line), 81, line)
	}
	assert.Contains(t, out.String(), "\n# bbb")
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestPrint_TellsWriteErrors(t *testing.T) {
	assert.ErrorIs(t, Print(failingWriter{}, PrintOptions{}, tableOf(&sample{})), os.ErrClosed)
}

// What Print writes reads back as the same configuration.
func TestPrint_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-z0-9_:]{0,6}`).Filter(func(s string) bool { return s != "all" })
		names := rapid.SliceOfN(name, 1, 4).Draw(t, "names")
		s := sample{
			Base:    Base{Verbose: rapid.Bool().Draw(t, "verbose")},
			Depth:   rapid.IntRange(1, 1<<20).Draw(t, "depth"),
			Small:   rapid.Int8().Draw(t, "small"),
			Seg:     MemSize(rapid.Uint64Min(1).Draw(t, "seg")),
			Limit:   MemSize(rapid.Uint64().Draw(t, "limit")),
			Timeout: time.Duration(rapid.Int64Min(0).Draw(t, "timeout")),
			TLS:     rapid.SampledFrom([]List{{}, Allow(names...), Deny(names...)}).Draw(t, "tls"),
			Inline:  Ternary(rapid.IntRange(0, 3).Draw(t, "inline")),
			Mode:    rapid.SampledFrom([]string{"poll", "sleep", "Both"}).Draw(t, "mode"),
			Paint:   colour(rapid.IntRange(0, 1).Draw(t, "paint")),
			Label:   rapid.StringMatching(`[a-z=.]*`).Draw(t, "label"),
			Names:   names,
			FC:      flow{Window: rapid.Uint16Min(1).Draw(t, "window"), Factor: rapid.Float64Range(-5, 1).Draw(t, "factor")},
		}
		var out bytes.Buffer
		if err := Print(&out, PrintOptions{Docs: true}, tableOf(&s)); err != nil {
			t.Fatal(err)
		}
		var back sample
		if err := FromEnv(strings.Split(out.String(), "\n"), tableOf(&back)); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%+v", back) != fmt.Sprintf("%+v", s) {
			t.Fatalf("wrote\n%+v\nread\n%+v", s, back)
		}
	})
}

func FuzzFromEnv(f *testing.F) {
	f.Add("GUCX_RC_TX_DEPTH=5")
	f.Add("GUCX_RC_TLS=^tcp")
	f.Add("GUCX_RC_FC_FACTOR=0.5")
	f.Add("GUCX_")
	f.Add("GUCX_RC_NAMES=,,")
	f.Fuzz(func(t *testing.T, entry string) {
		var s, untouched sample
		if err := FromEnv([]string{entry}, tableOf(&s)); err != nil {
			assert.Equal(t, untouched, s)
			assert.NotEmpty(t, err.Error())
		}
	})
}

func Example() {
	type Config struct {
		TxDepth int     `env:"TX_DEPTH" default:"256" doc:"Send queue length in basic blocks."`
		Segment MemSize `env:"SEG_SIZE" default:"8k" doc:"Size of a bounce buffer."`
	}
	var rc Config
	table := Table{Prefix: "RC", Doc: "rc transport", Config: &rc}
	if err := FromEnv([]string{"GUCX_RC_SEG_SIZE=64k"}, table); err != nil {
		fmt.Println(err)
	}
	Print(os.Stdout, PrintOptions{}, table)
	fmt.Println(FromEnv([]string{"GUCX_RC_TXDEPTH=1"}, table))
	// Output:
	// GUCX_RC_TX_DEPTH=256
	// GUCX_RC_SEG_SIZE=64k
	// GUCX_RC_TXDEPTH: unknown name, the nearest is GUCX_RC_TX_DEPTH
}
