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
	Intro   string // what the paper asks, and how gucx answers
	Figures []Figure
}

// Figure is a figure, table or section of a paper.
type Figure struct {
	ID     string // on the command line: "9", "12a", "table1"
	Title  string
	How    How
	Lesson string // what the paper shows with it
	// Note says how to read our values: the parameters of the model, why a value misses.
	Note string
	// Missing is what cannot be shown on a machine without the paper's hardware, and why; "" if nothing.
	Missing string
	Cases   []Case
	Plots   []Plot
}

// How is the way in which values are obtained.
type How string

// The ways. Values of all but RealTime are the same in each run of one build.
const (
	Counted      How = "objects and bytes that are counted"
	Instructions How = "instructions that are counted by single-stepping"
	Virtual      How = "virtual time of a model of the paper's machine"
	RealTime     How = "real time on the software HCA"
	Structure    How = "nothing is measured"
)

// Case is one value of a figure beside that of the paper.
type Case struct {
	Name  string
	Value Value
	Unit  Unit
	// Paper is the paper's value. Says is its text where that is no number, or more than one.
	Paper float64
	Says  string
	Place string // in the paper
	Rule  Rule   // nil: the paper has no value to compare with
	// Lo and Hi bound Value with a confidence of 95 %, if it has bounds. The outcome is Noise unless the rule
	// decides alike for all that lies between.
	Lo, Hi Value
	// Noisy says that the effect is smaller than what disturbs its measurement on few CPUs.
	Noisy bool
}

// Run is a command of perftest whose rows a figure reads.
type Run struct {
	Env  []string // NAME=value
	Args string
	// Lines says that the command prints "name: value" lines instead of CSV.
	Lines bool
}

// Command is what a user types.
func (r *Run) Command() string {
	return strings.Join(append(slices.Clone(r.Env), "perftest", r.Args), " ")
}

// Words splits the arguments as a shell does: quotes are around whole words, and keep backslashes.
func (r *Run) Words() []string {
	words := strings.Fields(r.Args)
	for i, w := range words {
		words[i] = strings.Trim(w, "'")
	}
	return words
}

// Plot is a picture of rows of a run: a line for each series.
type Plot struct {
	Run    *Run
	Where  string // rows, as pick has them
	Title  string
	X, Y   string  // columns
	Series string  // columns, separated by commas
	Scale  float64 // of Y; 0 means 1
	LogY   bool
	// Sum, if not "", adds up those of the rows with the same X and series that have these values.
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

// Papers lists all.
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

// Find finds a paper.
func Find(name string) (*Paper, error) {
	for _, p := range Papers() {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("paper %q: there are %s", name, strings.Join(Names(), ", "))
}

// Only returns the paper with those of its figures alone; all if ids is empty.
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
