package paper

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"strconv"
	"strings"

	"github.com/gucx/gucx/perftest/internal/show/chart"
)

// report is the data for the template of the report.
type report struct {
	Commit string
	Papers []reportPaper
}

type reportPaper struct {
	*Paper
	Holds, Misses, Rest int
	Figures             []reportFigure
}

type reportFigure struct {
	*Figure
	Label    string
	Rows     []Row
	Commands []string
	Picture  template.HTML // SVG; "" if there is none
}

// HTML writes a report with embedded plots, which needs no other file.
func HTML(w io.Writer, papers []*Paper, res Results, commit string) error {
	rep := report{Commit: commit}
	for _, p := range papers {
		rp := reportPaper{Paper: p}
		for i := range p.Figures {
			f := &p.Figures[i]
			picture, err := f.picture(res)
			if err != nil {
				return fmt.Errorf("figure %s of %s: %w", f.ID, p.Name, err)
			}
			rf := reportFigure{Figure: f, Label: f.label(), Commands: f.Commands(), Picture: picture}
			if len(f.Cases) > 0 {
				rf.Rows = f.Rows(p.Name, res)
			}
			rp.count(rf.Rows)
			rp.Figures = append(rp.Figures, rf)
		}
		rep.Papers = append(rep.Papers, rp)
	}
	return page.Execute(w, rep)
}

func (p *reportPaper) count(rows []Row) {
	for _, r := range rows {
		switch r.Outcome {
		case Holds:
			p.Holds++
		case Misses:
			p.Misses++
		default:
			p.Rest++
		}
	}
}

// picture draws the plots of a figure whose results exist.
func (f *Figure) picture(res Results) (template.HTML, error) {
	var panels []chart.Lines
	for _, p := range f.Plots {
		if l := p.lines(res); len(l.Series) > 0 {
			panels = append(panels, l)
		}
	}
	if len(panels) == 0 {
		return "", nil
	}
	var b bytes.Buffer
	if err := chart.SVG(&b, panels); err != nil {
		return "", err
	}
	svg := b.String()
	if i := strings.Index(svg, "<svg"); i >= 0 {
		svg = svg[i:] // HTML permits no XML declaration
	}
	return template.HTML(svg), nil // written by package chart; contains no scripts
}

// lines returns the points of a plot. Rows without a number are omitted.
func (p *Plot) lines(res Results) chart.Lines {
	l := chart.Lines{Title: p.Title, X: p.XLabel, Y: p.YLabel, LogY: p.LogY}
	scale := p.Scale
	if scale == 0 {
		scale = 1
	}
	for _, row := range res[p.Run.Command()].where(p.Where).summed(p) {
		x, errX := number(row, p.X)
		y, errY := number(row, p.Y)
		if errX != nil || errY != nil || x <= 0 || p.LogY && y <= 0 {
			continue
		}
		l.Add(series(row, p.Series), x, y*scale)
	}
	return l
}

// summed adds rows as the plot selects.
func (t Table) summed(p *Plot) (rows Table) {
	if p.Sum == "" {
		return t
	}
	at := map[string]map[string]string{}
	for _, row := range t.where(p.Sum) {
		key := row[p.X] + " " + series(row, p.Series)
		if at[key] == nil {
			at[key] = maps.Clone(row)
			rows = append(rows, at[key])
			continue
		}
		a, errA := number(at[key], p.Y)
		b, errB := number(row, p.Y)
		if errors.Join(errA, errB) == nil {
			at[key][p.Y] = strconv.FormatFloat(a+b, 'g', -1, 64)
		}
	}
	return rows
}

// series returns the name of a row's line.
func series(row map[string]string, columns string) string {
	var parts []string
	for c := range strings.SplitSeq(columns, ",") {
		if row[c] != "" {
			parts = append(parts, row[c])
		}
	}
	return strings.Join(parts, " ")
}

var page = template.Must(template.New("report").Funcs(template.FuncMap{"ratio": blankRatio}).Parse(reportText))

func blankRatio(v float64) string { return blankZero(v) }

const reportText = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gucx beside the papers</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff; }
h1 { font-size: 1.7rem; } h2 { margin-top: 3rem; border-bottom: 2px solid #456; } h3 { margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; margin: 0.8rem 0; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.2rem 0.6rem; border-bottom: 1px solid #ddd; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; }
.holds { color: #17692d; } .misses { color: #a32020; } .rest { color: #666; }
.how, .place { color: #666; font-size: 0.85rem; }
pre { background: #f4f5f7; padding: 0.5rem 0.8rem; overflow-x: auto; font-size: 0.85rem; }
svg { max-width: 100%; height: auto; }
nav a { margin-right: 1rem; }
</style>
</head>
<body>
<h1>gucx beside the papers</h1>
<p>Each section is a figure of a paper: what it teaches, our values beside the paper's, and the commands that print ours.
The paper's hardware is not here. Counts compare as they are; rates are predictions of a model where a figure says virtual time,
and of a device in software where it says real time, so that ratios compare and absolute times do not. Commit {{.Commit}}.</p>
<table>
<tr><th>Paper</th><th>holds</th><th>misses</th><th>no value, or not measured</th></tr>
{{range .Papers}}<tr><td><a href="#{{.Name}}">{{.Title}}</a></td><td class="n holds">{{.Holds}}</td><td class="n misses">{{.Misses}}</td><td class="n rest">{{.Rest}}</td></tr>
{{end}}</table>
{{range $p := .Papers}}
<h2 id="{{.Name}}">{{.Title}}</h2>
<p class="how">{{.Authors}}. The paper's machine: {{.Machine}}.</p>
<p>{{.Intro}}</p>
<nav>{{range .Figures}}<a href="#{{$p.Name}}-{{.ID}}">{{.Label}}</a> {{end}}</nav>
{{range .Figures}}
<h3 id="{{$p.Name}}-{{.ID}}">{{.Label}}: {{.Title}}</h3>
<p>{{.Lesson}}</p>
{{if .Rows}}<p class="how">Ours: {{.How}}.</p>
<table>
<tr><th>Case</th><th>ours</th><th>paper</th><th>ratio</th><th>verdict</th><th>place</th></tr>
{{range .Rows}}<tr><td>{{.Case}}</td><td class="n">{{.Ours}}</td><td>{{.Theirs}}</td><td class="n">{{ratio .Ratio}}</td><td class="{{if eq .Outcome "holds"}}holds{{else if eq .Outcome "misses"}}misses{{else}}rest{{end}}">{{.Outcome}}</td><td class="place">{{.Place}}</td></tr>
{{end}}</table>{{end}}
{{if .Picture}}<figure>{{.Picture}}</figure>{{end}}
{{if .Note}}<p>{{.Note}}</p>{{end}}
{{if .Missing}}<p><strong>Not shown.</strong> {{.Missing}}</p>{{end}}
{{if .Commands}}<pre>{{range .Commands}}{{.}}
{{end}}</pre>{{end}}
{{end}}{{end}}
</body>
</html>
`
