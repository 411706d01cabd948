package msgrate

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Features are the operational features of InfiniBand that the study turns off one at a time. The
// zero value has all of them.
type Features struct {
	// NoPostlist posts one message per call, NoUnsignaled signals each message, NoInline makes the
	// device fetch the payload, NoBlueFlame rings 8-byte doorbells.
	NoPostlist, NoUnsignaled, NoInline, NoBlueFlame bool
}

var features = []struct {
	name string
	off  func(*Features) *bool
}{
	{"postlist", func(f *Features) *bool { return &f.NoPostlist }},
	{"unsignaled", func(f *Features) *bool { return &f.NoUnsignaled }},
	{"inline", func(f *Features) *bool { return &f.NoInline }},
	{"blueflame", func(f *Features) *bool { return &f.NoBlueFlame }},
}

// FeatureNames lists the names of features that can be turned off.
func FeatureNames() (names []string) {
	for _, f := range features {
		names = append(names, f.name)
	}
	return names
}

// AllButEach returns all features, and then all with each one turned off.
func AllButEach() []Features {
	list := make([]Features, 1+len(features))
	for i, f := range features {
		*f.off(&list[i+1]) = true
	}
	return list
}

// String returns "all" or, for example, "all w/o postlist unsignaled".
func (f Features) String() string {
	var off []string
	for _, x := range features {
		if *x.off(&f) {
			off = append(off, x.name)
		}
	}
	if len(off) == 0 {
		return "all"
	}
	return "all w/o " + strings.Join(off, " ")
}

// ParseFeatures parses the output of String, with or without "all w/o", and with "+" or blanks
// between names: "all", "w/o postlist", "postlist+unsignaled".
func ParseFeatures(text string) (f Features, err error) {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r == ' ' || r == '+' })
next:
	for _, w := range words {
		if w == "all" || w == "w/o" {
			continue
		}
		for _, x := range features {
			if x.name == w {
				*x.off(&f) = true
				continue next
			}
		}
		return f, fmt.Errorf("feature %q: there are %s", w, strings.Join(FeatureNames(), ", "))
	}
	return f, nil
}

// Apply turns features off in cfg and queues.
func (f Features) Apply(cfg Config, queues mlx5.Config) (Config, mlx5.Config) {
	if f.NoPostlist {
		cfg.Postlist = 1
	}
	if f.NoUnsignaled {
		cfg.Unsignaled = 1
	}
	cfg.Inline = !f.NoInline
	queues.ShutUpBF = queues.ShutUpBF || f.NoBlueFlame
	return cfg, queues
}
