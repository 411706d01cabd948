package paper

import (
	"fmt"
	"io"
	"strings"
)

// AllRows evaluates all figures.
func AllRows(papers []*Paper, res Results) (rows []Row) {
	for _, p := range papers {
		for i := range p.Figures {
			rows = append(rows, p.Figures[i].Rows(p.Name, res)...)
		}
	}
	return rows
}

// List writes figures with their commands, and with what cannot be shown.
func List(w io.Writer, papers []*Paper) error {
	var b strings.Builder
	for _, p := range papers {
		fmt.Fprintf(&b, "%s: %s (%s)\n", p.Name, p.Title, p.Authors)
		for i := range p.Figures {
			f := &p.Figures[i]
			fmt.Fprintf(&b, "\n  %s  %s\n      by %s\n", f.ID, f.Title, f.How)
			for _, c := range f.Commands() {
				fmt.Fprintf(&b, "      $ %s\n", c)
			}
			if f.Missing != "" {
				fmt.Fprintf(&b, "      not shown: %s\n", f.Missing)
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Page writes papers in Markdown: the result of each figure, its values, its commands.
func Page(w io.Writer, papers []*Paper, res Results) error {
	var b strings.Builder
	for _, p := range papers {
		p.page(&b, res)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *Paper) page(b *strings.Builder, res Results) {
	fmt.Fprintf(b, "# %s\n\n%s.\nThe paper's machine: %s.\n\n%s\n", p.Title, p.Authors, p.Machine, wrap(p.Intro))
	fmt.Fprintf(b, "\n`perftest paper %s` prints these values; `perftest paper %s %s` those of one figure.\n", p.Name, p.Name, p.example())
	for i := range p.Figures {
		p.Figures[i].page(b, p.Name, res)
	}
}

// example returns the first figure with values.
func (p *Paper) example() string {
	for i := range p.Figures {
		if len(p.Figures[i].Cases) > 0 {
			return p.Figures[i].ID
		}
	}
	return ""
}

func (f *Figure) page(b *strings.Builder, paper string, res Results) {
	fmt.Fprintf(b, "\n## %s: %s\n\n%s\n", f.label(), f.Title, wrap(f.Lesson))
	if len(f.Cases) > 0 {
		fmt.Fprintf(b, "\nOurs: %s.\n\n| | ours | paper | ratio | result | place |\n|---|---|---|---|---|---|\n", f.How)
		for _, r := range f.Rows(paper, res) {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", r.Case, r.Ours, r.Theirs, blankZero(r.Ratio), r.Outcome, r.Place)
		}
	}
	for _, text := range []string{f.Note, f.Missing} {
		if text != "" {
			fmt.Fprintf(b, "\n%s\n", wrap(text))
		}
	}
	for i, c := range f.Commands() {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(b, "    %s\n", c)
	}
}

// label returns "Figure 9", "Table 1" or "Section 3.3".
func (f *Figure) label() string {
	if rest, ok := strings.CutPrefix(f.ID, "table"); ok {
		return "Table " + rest
	}
	if strings.Contains(f.ID, ".") || strings.HasPrefix(f.ID, "VI") {
		return "Section " + f.ID
	}
	return "Figure " + f.ID
}

// lineLen is the width of the text of a page.
const lineLen = 96

// wrap breaks a text into lines.
func wrap(text string) string {
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case n+1+len(word) > lineLen:
			b.WriteByte('\n')
			n = 0
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += len(word)
	}
	return b.String()
}
