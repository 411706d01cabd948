package config

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMemSize_Unmarshal(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want MemSize
	}{
		{"1", 1},
		{"512", 512},
		{"512b", 512},
		{"8k", 8 << 10},
		{"8K", 8 << 10},
		{"8kb", 8 << 10},
		{"1.5m", 3 << 19},
		{"0.5g", 1 << 29},
		{"2t", 2 << 40},
		{"3p", 3 << 50},
		{"15e", 15 << 60},
		{"0", MemZero},
		{"0k", MemZero},
		{"inf", MemInf},
		{"INF", MemInf},
		{"auto", MemAuto},
		{"0.0001k", MemZero},
		{"18446744073709551613", MemSize(maxMemSize)},
	} {
		t.Run(tt.in, func(t *testing.T) {
			m := MemSize(12345)
			require.NoError(t, m.UnmarshalText([]byte(tt.in)))
			assert.Equal(t, tt.want, m)
		})
	}
}

func TestMemSize_Refuses(t *testing.T) {
	for in, want := range map[string]error{
		"":                      errSyntax,
		"k":                     errSyntax,
		"kb":                    errSyntax,
		"b":                     errSyntax,
		"-1":                    errSyntax,
		"+1":                    errSyntax,
		"1 k":                   errSyntax,
		"1.":                    errSyntax,
		".5k":                   errSyntax,
		"1.2.3":                 errSyntax,
		"1e3":                   errSyntax,
		"8kk":                   errSyntax,
		"8z":                    errSyntax,
		"0x10":                  errSyntax,
		"infinite":              errSyntax,
		"16e":                   errRange,
		"99999999999999999999":  errRange,
		"18446744073709551614":  errRange,
		"18446744073709551615":  errRange,
		"184467440737095516150": errRange,
	} {
		t.Run(in, func(t *testing.T) {
			m := MemSize(12345)
			assert.Equal(t, want, m.UnmarshalText([]byte(in)))
			assert.Equal(t, MemSize(12345), m, "a refused value must not change anything")
		})
	}
}

func TestMemSize_Bytes(t *testing.T) {
	assert.Equal(t, uint64(77), MemAuto.Bytes(77))
	assert.Equal(t, uint64(0), MemZero.Bytes(77))
	assert.Equal(t, uint64(math.MaxUint64), MemInf.Bytes(77))
	assert.Equal(t, uint64(9), MemSize(9).Bytes(77))
}

func TestMemSize_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := MemSize(rapid.Uint64().Draw(t, "size") >> rapid.IntRange(0, 63).Draw(t, "shift"))
		m <<= rapid.IntRange(0, 40).Draw(t, "unit")
		var back MemSize
		if err := back.UnmarshalText([]byte(m.String())); err != nil || back != m {
			t.Fatalf("%d prints %q, which reads as %d, %v", uint64(m), m, uint64(back), err)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want time.Duration
	}{
		{"10ms", 10 * time.Millisecond},
		{"1.5s", 1500 * time.Millisecond},
		{"20us", 20 * time.Microsecond},
		{"0.1us", 100},
		{"7ns", 7},
		{"0.9ns", 0},
		{"2m", 2 * time.Minute},
		{"3", 3 * time.Second},
		{"0.25", 250 * time.Millisecond},
		{"0", 0},
		{"auto", 0},
		{"inf", Infinite},
		{"Inf", Infinite},
		{"10MS", 10 * time.Millisecond},
		{"9223372036.854775806s", math.MaxInt64 - 1},
	} {
		t.Run(tt.in, func(t *testing.T) {
			d, err := ParseDuration(tt.in)
			require.NoError(t, err)
			assert.Equal(t, tt.want, d)
		})
	}
}

func TestParseDuration_Refuses(t *testing.T) {
	for in, want := range map[string]error{
		"": errSyntax, "s": errSyntax, "ms": errSyntax, "-1s": errSyntax, "1h": errSyntax, "1s2ms": errSyntax,
		"1 s": errSyntax, "1.s": errSyntax, "nan": errSyntax, "1e9s": errSyntax, "9223372036.854775807s": errRange,
		"9223372037s": errRange, "99999999999999999999ns": errRange,
	} {
		t.Run(in, func(t *testing.T) {
			_, err := ParseDuration(in)
			assert.Equal(t, want, err)
		})
	}
}

func TestDuration_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "ns") >> rapid.IntRange(0, 62).Draw(t, "shift"))
		unit := rapid.SampledFrom([]time.Duration{1, 1000, time.Millisecond, time.Second, time.Minute}).Draw(t, "unit")
		d -= d % unit
		back, err := ParseDuration(FormatDuration(d))
		if err != nil || back != d {
			t.Fatalf("%d prints %q, which reads as %d, %v", d, FormatDuration(d), back, err)
		}
	})
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"auto": 0, "inf": Infinite, "1ns": 1, "1500us": 1500 * time.Microsecond, "90s": 90 * time.Second, "2m": 2 * time.Minute,
	} {
		assert.Equal(t, want, FormatDuration(d))
	}
}

func TestList_Allows(t *testing.T) {
	for _, tt := range []struct {
		in         string
		yes, no    []string
		negated    bool
		wantString string
	}{
		{"all", []string{"rc", "tcp", ""}, nil, false, "all"},
		{"ALL", []string{"rc"}, nil, false, "all"},
		{"rc", []string{"rc"}, []string{"ud", "RC", "rc_x", ""}, false, "rc"},
		{"rc,ud", []string{"rc", "ud"}, []string{"tcp"}, false, "rc,ud"},
		{"^tcp", []string{"rc", "ud"}, []string{"tcp"}, true, "^tcp"},
		{"^tcp,sm", []string{"rc"}, []string{"tcp", "sm"}, true, "^tcp,sm"},
		{"mlx5_0:1", []string{"mlx5_0:1"}, []string{"mlx5_0"}, false, "mlx5_0:1"},
	} {
		t.Run(tt.in, func(t *testing.T) {
			var l List
			require.NoError(t, l.UnmarshalText([]byte(tt.in)))
			for _, name := range tt.yes {
				assert.True(t, l.Allows(name), name)
			}
			for _, name := range tt.no {
				assert.False(t, l.Allows(name), name)
			}
			assert.Equal(t, tt.negated, l.Negated())
			assert.Equal(t, tt.wantString, l.String())
		})
	}
}

func TestList_Refuses(t *testing.T) {
	for _, in := range []string{"", "^", ",", "rc,", ",rc", "rc,,ud", "rc, ud", " rc", "rc,^tcp", "^^tcp", "^all", "rc,all", "a\tb"} {
		t.Run(in, func(t *testing.T) {
			l := Allow("kept")
			assert.Error(t, l.UnmarshalText([]byte(in)))
			assert.Equal(t, Allow("kept"), l)
		})
	}
}

func TestList_FromCode(t *testing.T) {
	assert.True(t, List{}.Allows("anything"))
	assert.False(t, Allow().Allows("anything"))
	assert.True(t, Deny().Allows("anything"))
	assert.False(t, Deny("tcp").Allows("tcp"))
	names := []string{"rc"}
	l := Allow(names...)
	names[0] = "changed"
	assert.True(t, l.Allows("rc"), "the list keeps its own copy")
	l.Names()[0] = "changed"
	assert.Equal(t, []string{"rc"}, l.Names())
	assert.Nil(t, List{}.Names())
	assert.Equal(t, []string{"rd"}, Deny("rc", "rd").Unknown([]string{"rc", "ud"}))
}

func TestTernary(t *testing.T) {
	for in, want := range map[string]Ternary{
		"y": Yes, "yes": Yes, "on": Yes, "1": Yes, "TRUE": Yes, "n": No, "no": No, "off": No, "0": No, "False": No,
		"try": Try, "Try": Try, "auto": Auto,
	} {
		var got Ternary
		require.NoError(t, got.UnmarshalText([]byte(in)), in)
		assert.Equal(t, want, got, in)
		var back Ternary
		require.NoError(t, back.UnmarshalText([]byte(got.String())))
		assert.Equal(t, got, back)
	}
	for _, in := range []string{"", "maybe", "2", "y ", "yy"} {
		got := Try
		assert.Error(t, got.UnmarshalText([]byte(in)), in)
		assert.Equal(t, Try, got)
	}
	assert.Equal(t, "auto", Ternary(99).String())
}

func TestEdits(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 1},
		{"TX_DEPTH", "TX_DETPH", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3},
	} {
		assert.Equal(t, tt.want, edits(tt.a, tt.b), "%s to %s", tt.a, tt.b)
		assert.Equal(t, tt.want, edits(tt.b, tt.a), "%s to %s", tt.b, tt.a)
	}
	assert.Equal(t, "", Nearest("x", nil))
	assert.Equal(t, "ab", Nearest("a", []string{"abc", "ab", "ac"}))
}

func FuzzMemSize(f *testing.F) {
	for _, seed := range []string{"8k", "inf", "auto", "1.5m", "0", "18446744073709551615", "16e", "b", "0.999999999999999999e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var m, back MemSize
		if m.UnmarshalText([]byte(in)) != nil {
			return
		}
		if err := back.UnmarshalText([]byte(m.String())); err != nil || back != m {
			t.Fatalf("%q is %q, which reads as %q, %v", in, m, back, err)
		}
		if whole, err := strconv.ParseUint(in, 10, 64); err == nil && m.Bytes(0) != whole {
			t.Fatalf("%q is %d", in, m.Bytes(0))
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"10ms", "1.5s", "inf", "auto", "0", "9223372036.854775807s", "1m", ".s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		d, err := ParseDuration(in)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%q is negative: %d", in, d)
		}
		if back, err := ParseDuration(FormatDuration(d)); err != nil || back != d {
			t.Fatalf("%q is %v, which reads as %v, %v", in, d, back, err)
		}
	})
}

func FuzzList(f *testing.F) {
	for _, seed := range []string{"all", "^tcp", "rc,ud", "", "^", "a,,b", "^^a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var l, back List
		if l.UnmarshalText([]byte(in)) != nil {
			return
		}
		if err := back.UnmarshalText([]byte(l.String())); err != nil || back.String() != l.String() {
			t.Fatalf("%q is %q, which reads as %q, %v", in, l, back, err)
		}
		for _, name := range l.Names() {
			if l.Allows(name) == l.Negated() {
				t.Fatalf("%q mentions %q, but Allows is %v", in, name, l.Allows(name))
			}
			if strings.Contains(name, ",") {
				t.Fatalf("%q has the name %q", in, name)
			}
		}
	})
}
