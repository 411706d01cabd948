package paper

import (
	"fmt"
	"slices"
	"strings"
)

// Paper is one of the papers.
type Paper struct {
	Name    string // on the command line
	Title   string
	Authors string
	Machine string // that the paper measured
	Intro   string // question of the paper, and the result for gucx
	Figures []Figure
}

// Figure is a figure, table or section of a paper.
type Figure struct {
	ID     string // on the command line: "9", "12a", "table1"
	Title  string
	How    How
	Lesson string // what the paper shows with it
	// Note explains our values: the parameters of the model, and why a value differs.
	Note string
	// Missing describes what cannot be shown without the paper's hardware, and why; "" if nothing.
	Missing string
	Cases   []Case
	Plots   []Plot
}

// How is the way in which values are obtained.
type How string

// The ways. All values except those of RealTime are the same in each run of one build.
const (
	Counted      How = "objects and bytes that are counted"
	Instructions How = "instructions that are counted by single-stepping"
	Virtual      How = "virtual time of a model of the paper's machine"
	RealTime     How = "real time on the software HCA"
	Structure    How = "nothing is measured"
)

// Case is one value of a figure, with that of the paper.
type Case struct {
	Name  string
	Value Value
	Unit  Unit
	// Paper is the paper's value. Says is its text if it is not a single number.
	Paper float64
	Says  string
	Place string // in the paper
	Rule  Rule   // nil: the paper has no value to compare with
	// Lo and Hi are bounds of Value with a confidence of 95 %, if it has bounds. The outcome is Noise unless the rule
	// decides equally for all values between them.
	Lo, Hi Value
	// Noisy: the effect is smaller than the disturbance of its measurement on few CPUs.
	Noisy bool
}

// Run is a command of perftest whose rows a figure reads.
type Run struct {
	Env  []string // NAME=value
	Args string
	// Lines: the command prints "name: value" lines instead of CSV.
	Lines bool
}

// Command returns the command line.
func (r *Run) Command() string {
	return strings.Join(append(slices.Clone(r.Env), "perftest", r.Args), " ")
}

// Words splits the arguments as a shell does: quotes enclose whole words, and backslashes are kept.
func (r *Run) Words() []string {
	words := strings.Fields(r.Args)
	for i, w := range words {
		words[i] = strings.Trim(w, "'")
	}
	return words
}

// Plot is a plot of rows of a run: a line for each series.
type Plot struct {
	Run    *Run
	Where  string // rows, in the form of pick
	Title  string
	X, Y   string  // columns
	Series string  // columns, separated by commas
	Scale  float64 // of Y; 0 means 1
	LogY   bool
	// Sum, if not "", selects rows by values; those with the same X and series are added.
	Sum    string
	XLabel string
	YLabel string
}

// Runs lists the commands of a figure, each once.
func (f *Figure) Runs() (list []*Run) {
	add := func(r *Run) {
		if r != nil && !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	for _, c := range f.Cases {
		for _, r := range slices.Concat(c.Value.runs, c.Lo.runs, c.Hi.runs) {
			add(r)
		}
	}
	for _, p := range f.Plots {
		add(p.Run)
	}
	return list
}

// Papers lists all papers.
func Papers() []*Paper {
	return []*Paper{endpointsPaper(), tupleqPaper(), directVerbsPaper(), ucxPaper()}
}

// Names lists the names of papers.
func Names() (names []string) {
	for _, p := range Papers() {
		names = append(names, p.Name)
	}
	return names
}

// Find returns the paper with a name.
func Find(name string) (*Paper, error) {
	for _, p := range Papers() {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("paper %q: there are %s", name, strings.Join(Names(), ", "))
}

// Only returns the paper with the selected figures; all if ids is empty.
func (p *Paper) Only(ids []string) (*Paper, error) {
	if len(ids) == 0 {
		return p, nil
	}
	some := *p
	some.Figures = nil
	for _, id := range ids {
		i := slices.IndexFunc(p.Figures, func(f Figure) bool { return f.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("figure %q of %s: there are %s", id, p.Name, strings.Join(p.ids(), ", "))
		}
		some.Figures = append(some.Figures, p.Figures[i])
	}
	return &some, nil
}

func (p *Paper) ids() (ids []string) {
	for _, f := range p.Figures {
		ids = append(ids, f.ID)
	}
	return ids
}
