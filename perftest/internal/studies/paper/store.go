package paper

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Store stores the outputs of commands, in a file or, without a file name, in memory.
type Store struct {
	file   string
	Commit string            `json:"commit"`
	Output map[string]string `json:"output"` // by command
}

// OpenStore reads a file of results, or creates one. It rejects results of another commit, unless any is set.
func OpenStore(file, commit string, any bool) (*Store, error) {
	s := &Store{file: file, Commit: commit, Output: map[string]string{}}
	if file == "" {
		return s, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("results %s: %w", file, err)
	}
	if s.Commit != commit && !any {
		return nil, fmt.Errorf("results %s are of commit %s, and this is %s: name another file", file, s.Commit, commit)
	}
	return s, nil
}

// Has reports whether the store has the results of a command.
func (s *Store) Has(r *Run) bool { _, ok := s.Output[r.Command()]; return ok }

// Put stores the output of a command and writes the file.
func (s *Store) Put(r *Run, output string) error {
	s.Output[r.Command()] = output
	if s.file == "" {
		return nil
	}
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	// The file is replaced atomically, because the next run reads it.
	part := s.file + ".part"
	if err := os.WriteFile(part, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(part, s.file)
}

// Results parses all results.
func (s *Store) Results() (Results, error) {
	res := Results{}
	for command, text := range s.Output {
		t, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		res[command] = t
	}
	return res, nil
}

// parse parses CSV with a header, or lines of the form "name: value unit" if the first line is a comment.
func parse(text string) (t Table, err error) {
	if strings.HasPrefix(text, "#") {
		return parseLines(text), nil
	}
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		t = append(t, row)
	}
	return t, nil
}

func parseLines(text string) (t Table) {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.Trim(line, "# \n"), ": ")
		name = strings.ReplaceAll(name, ",", "") // a comma separates conditions
		if fields := strings.Fields(value); ok && len(fields) > 0 {
			t = append(t, map[string]string{"name": name, "value": fields[0]})
		}
	}
	return t
}
