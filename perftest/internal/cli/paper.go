package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/paper"
)

// paperFlags are the flags of perftest paper.
type paperFlags struct {
	all     bool
	list    bool
	results string
	keep    bool
	output  string
	html    string
	quiet   bool
}

// pageFormat is the format of the pages in docs/papers.
const pageFormat = "page"

func paperFormats() []string { return append(sheet.Formats(), pageFormat) }

func newPaper() *cobra.Command {
	var p paperFlags
	cmd := &cobra.Command{
		Use:   "paper NAME [FIGURE...]",
		Short: "Compare our results with the figures of papers",
		Long: `Compare our results with the figures of the papers that gucx implements.

For each figure: case, our value, the paper's, their ratio and a verdict, with
the source of the value: counted objects, counted instructions, virtual time of
a model, or real time on the software HCA. --list has the commands of each
figure and those that need the paper's hardware.

--results stores the output of the commands in a file. An interrupted run
continues from it, and other output formats need no new run.

Papers: ` + strings.Join(paper.Names(), ", ") + `; all for each of them.`,
		Example: `  perftest paper endpoints 9 12           two figures
  perftest paper all --results all.json --html report.html
  perftest paper ucx --list               commands, and missing figures`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return append(paper.Names(), "all"), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		Args: usage(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&p.all, "all", false, "all papers")
	f.BoolVar(&p.list, "list", false, "list the figures with their commands, and those that cannot be reproduced; measure nothing")
	f.StringVar(&p.results, "results", "", "store results in this `file`, and continue from those in it")
	f.BoolVar(&p.keep, "keep", false, "accept results of another commit")
	f.StringVarP(&p.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(paperFormats(), ", "))
	f.StringVar(&p.html, "html", "", "also write a report with plots to this `file`")
	f.BoolVarP(&p.quiet, "quiet", "q", false, "show no progress")
	complete.One(cmd, "output", paperFormats)
	complete.Files(cmd, "results", "json")
	complete.Files(cmd, "html", "html")
	return cmd
}

// papers checks the arguments.
func (p *paperFlags) papers(args []string) ([]*paper.Paper, error) {
	if p.output != pageFormat {
		if err := sheet.CheckFormat(p.output); err != nil {
			return nil, err
		}
	}
	if p.all && len(args) == 0 || len(args) == 1 && args[0] == "all" {
		return paper.Papers(), nil
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("want a paper, one of %s, or all", strings.Join(paper.Names(), ", "))
	}
	one, err := paper.Find(args[0])
	if err != nil {
		return nil, err
	}
	ids := args[1:]
	if p.all {
		ids = nil
	}
	if one, err = one.Only(ids); err != nil {
		return nil, err
	}
	return []*paper.Paper{one}, nil
}

func (p *paperFlags) run(cmd *cobra.Command, args []string) error {
	papers, err := p.papers(args)
	if err != nil {
		return &usageError{err}
	}
	if p.list {
		return paper.List(cmd.OutOrStdout(), papers)
	}
	ctx := cmd.Context()
	store, err := paper.OpenStore(p.results, machine.Commit(ctx), p.keep)
	if err != nil {
		return &usageError{err}
	}
	m := meter.New(os.Stderr, len(paper.Todo(papers, store)), p.quiet)
	err = paper.Measure(ctx, papers, store, runSelf, func(r *paper.Run) { m.Step(r.Args, 0) })
	m.Close()
	return errors.Join(err, p.write(cmd, papers, store, err))
}

// paperConditions is the first object of JSON output.
type paperConditions struct {
	Machine result.Machine `json:"machine"`
	Commit  string         `json:"commit"`
	result.Partial
}

// write writes the contents of the store. cut is the reason if they are incomplete.
func (p *paperFlags) write(cmd *cobra.Command, papers []*paper.Paper, store *paper.Store, cut error) error {
	res, err := store.Results()
	if err != nil {
		return err
	}
	if p.html != "" {
		if err := writeFile(p.html, func(w io.Writer) error { return paper.HTML(w, papers, res, store.Commit) }); err != nil {
			return err
		}
	}
	if p.output == pageFormat {
		return paper.Page(cmd.OutOrStdout(), papers, res)
	}
	c := paperConditions{Partial: partial(cmd.Context(), cut), Machine: machine.Describe(), Commit: store.Commit}
	lines := append([]string{fmt.Sprintf("%s, GOMAXPROCS %d", c.Machine, c.Machine.GOMAXPROCS), "gucx " + c.Commit}, c.Lines()...)
	return paper.Sheet(c, lines, paper.AllRows(papers, res)).Write(cmd.OutOrStdout(), p.output)
}

// writeFile writes a file.
func writeFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}

// selfDelay is the time after which an interrupted command is killed.
const selfDelay = 10 * time.Second

// runSelf runs a command of perftest in a process, which ends with this one. With text it returns the output, otherwise
// CSV.
func runSelf(ctx context.Context, r *paper.Run) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	args := r.Words()
	if !r.Lines {
		args = append(args, "-q", "-o", "csv")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(slices.Clone(os.Environ()), r.Env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// Pdeathsig follows the thread that forks. The runtime ends a thread only with a goroutine that is locked to it,
	// and the goroutines here unlock first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = selfDelay
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", fmt.Errorf("%w: %s", err, oneLine(errors.New(strings.TrimSpace(stderr.String()))))
	}
	return stdout.String(), nil
}
