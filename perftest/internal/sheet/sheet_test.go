package sheet

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type row struct {
	Name string  `json:"name"`
	Rate float64 `json:"rate"`
}

func example() *Sheet[row] {
	return &Sheet[row]{
		Head: map[string]int{"cores": 2}, Lines: []string{"two cores"}, Legend: "Rates in MHz.",
		Columns: []Column[row]{
			{Name: "name", Title: "Name", Value: func(r row) any { return r.Name }},
			{Name: "rate", Title: "Rate", Value: func(r row) any { return r.Rate }, Text: func(v any) string { return fmt.Sprintf("%.1f", v) }},
		},
		Rows:  []row{{"a", 1.25}, {"a", 2}, {"b", 10}},
		Group: func(r row) string { return r.Name },
	}
}

func TestWrite(t *testing.T) {
	for format, want := range map[string]string{
		"table": "two cores\n\n Name  Rate \n────────────\n a      1.2 \n a      2.0 \n────────────\n b     10.0 \n\nRates in MHz.\n",
		"md":    "two cores\n\n| Name | Rate |\n|:--- | ---:|\n| a | 1.2 |\n| a | 2.0 |\n| b | 10.0 |\n\nRates in MHz.\n",
		"csv":   "name,rate\na,1.25\na,2\nb,10\n",
		"json":  `{"cores":2}` + "\n" + `{"name":"a","rate":1.25}` + "\n" + `{"name":"a","rate":2}` + "\n" + `{"name":"b","rate":10}` + "\n",
	} {
		var out bytes.Buffer
		require.NoError(t, example().Write(&out, format))
		assert.Equal(t, want, out.String(), format)
		assert.NoError(t, CheckFormat(format))
	}
	assert.ErrorContains(t, example().Write(&bytes.Buffer{}, "xml"), "table, md, csv, json")
}
