package instr

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
)

// record is one result in machine-readable output.
type record struct {
	Test         string         `json:"test"` // "instructions"
	Op           string         `json:"op"`
	Layer        string         `json:"layer"` // measured API
	Switch       string         `json:"switch,omitempty"`
	Fabric       string         `json:"fabric"`
	Size         int            `json:"size"`         // bytes
	Instructions int            `json:"instructions"` // of the layers
	WithDevice   int            `json:"with_device"`
	Min          int            `json:"min"`
	Max          int            `json:"max"`
	Reps         int            `json:"reps"`
	Interrupted  int            `json:"interrupted"`
	Syscalls     int            `json:"syscalls"`
	Branches     int            `json:"branches"` // of the layers' instructions, on amd64
	Calls        int            `json:"calls"`
	Indirect     int            `json:"indirect_calls"`
	Loads        int            `json:"loads"`
	Parts        map[string]int `json:"parts,omitempty"`
	Places       []placeRecord  `json:"places,omitempty"`
	Skip         string         `json:"skip,omitempty"`
}

// placeRecord is a function or line of a record.
type placeRecord struct {
	Part         string `json:"part"`
	Function     string `json:"function"`
	Line         string `json:"line,omitempty"`
	Instructions int    `json:"instructions"`
}

func newRecord(fabric string, r Result) record {
	rec := record{
		Test: "instructions", Op: r.Case.Op.String(), Layer: r.Case.API.String(),
		Switch: r.Case.Switch, Fabric: fabric, Size: r.Case.Size,
		Instructions: r.Sample.Total(), Min: r.Sample.Min, Max: r.Sample.Max,
		WithDevice: r.Sample.Profile.WithDevice(),
		Reps:       r.Sample.Reps, Interrupted: r.Sample.Interrupted,
		Syscalls: r.Sample.Syscalls, Skip: r.Skip,
	}
	if r.Skip != "" {
		return rec
	}
	m := r.Sample.Mix()
	rec.Branches, rec.Calls, rec.Indirect, rec.Loads = m.Branches, m.Calls, m.Indirect, m.Loads
	rec.Parts = map[string]int{}
	for part := range harness {
		if n := r.Sample.Profile.Part(part); n > 0 {
			rec.Parts[part.String()] = n
		}
	}
	for _, at := range r.Sample.Profile.places() {
		if at.Function != "" {
			rec.Places = append(rec.Places, placeRecord{
				Part: at.Part.String(), Function: at.Function, Line: at.Line,
				Instructions: r.Sample.Profile[at],
			})
		}
	}
	return rec
}

// writeJSON writes one object per line: first the common data, then each result.
func writeJSON(w io.Writer, m *Measurement, about map[string]any) error {
	e := json.NewEncoder(w)
	if err := e.Encode(about); err != nil {
		return err
	}
	for _, r := range m.Results {
		if err := e.Encode(newRecord(m.Fabric, r)); err != nil {
			return err
		}
	}
	return nil
}

// writeCSV writes a line for each counted place; a whole part has no function.
func writeCSV(w io.Writer, m *Measurement) error {
	c := csv.NewWriter(w)
	lines := [][]string{{"op", "size", "layer", "switch", "fabric", "part", "function", "line", "instructions", "branches", "calls", "indirect_calls", "loads"}}
	for _, r := range m.Results {
		head := []string{r.Case.Op.String(), strconv.Itoa(r.Case.Size), r.Case.API.String(), r.Case.Switch, m.Fabric}
		for _, at := range r.Sample.Profile.places() {
			m := r.Sample.mix[at]
			lines = append(lines, append(head[:len(head):len(head)],
				at.Part.String(), at.Function, at.Line, strconv.Itoa(r.Sample.Profile[at]),
				strconv.Itoa(m.Branches), strconv.Itoa(m.Calls), strconv.Itoa(m.Indirect), strconv.Itoa(m.Loads)))
		}
	}
	return c.WriteAll(lines)
}
