package main

import "slices"

// These are the parts of Grafana's dashboard model that the boards use, with Grafana's names.

type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Links         []link     `json:"links"`
	Annotations   marks      `json:"annotations"`
	Templating    templating `json:"templating"`
	Panels        []panel    `json:"panels"`
}

type marks struct {
	List []annotation `json:"list"`
}

type annotation struct {
	Name        string     `json:"name"`
	Datasource  datasource `json:"datasource"`
	Enable      bool       `json:"enable"`
	IconColor   string     `json:"iconColor"`
	Expr        string     `json:"expr"`
	TitleFormat string     `json:"titleFormat"`
	TextFormat  string     `json:"textFormat"`
	Step        string     `json:"step"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// link is a link to all dashboards with a tag.
type link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	KeepTime    bool     `json:"keepTime"`
	IncludeVars bool     `json:"includeVars"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Datasource *datasource `json:"datasource,omitempty"`
	Query      string      `json:"query"`
	Definition string      `json:"definition,omitempty"`
	Refresh    int         `json:"refresh,omitempty"`
	Sort       int         `json:"sort,omitempty"`
	Multi      bool        `json:"multi"`
	IncludeAll bool        `json:"includeAll"`
	AllValue   string      `json:"allValue,omitempty"`
	Current    *choice     `json:"current,omitempty"`
}

type choice struct {
	Text  string `json:"text"`
	Value string `json:"value"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description,omitempty"`
	Datasource  *datasource `json:"datasource,omitempty"`
	GridPos     position    `json:"gridPos"`
	Targets     []target    `json:"targets,omitempty"`
	FieldConfig *fields     `json:"fieldConfig,omitempty"`
	Options     any         `json:"options,omitempty"`

	Transformations []transformation `json:"transformations,omitempty"`
}

// transformation changes the tables of a panel before Grafana shows them.
type transformation struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}

type position struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string     `json:"refId"`
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat,omitempty"`
	Instant      bool       `json:"instant,omitempty"`
	Format       string     `json:"format,omitempty"`
}

type fields struct {
	Defaults defaults `json:"defaults"`
}

type defaults struct {
	Unit       string      `json:"unit,omitempty"`
	Min        *float64    `json:"min,omitempty"`
	Thresholds *thresholds `json:"thresholds,omitempty"`
}

type thresholds struct {
	Mode  string      `json:"mode"`
	Steps []threshold `json:"steps"`
}

type threshold struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

const (
	columns   = 24
	statWidth = 4
	height    = 8
	refreshOn = 2 // query a variable again when the time range changes
	byName    = 1
)

// chosen is the data source that the user selects.
var chosen = datasource{Type: "prometheus", UID: "${datasource}"}

// board returns a dashboard with the variable for the data source and the variables in more.
func board(name, title, description string, more []variable, rows ...row) dashboard {
	source := variable{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus"}
	d := dashboard{
		UID: "kubemend-" + name, Title: "kubemend / " + title, Description: description, Tags: []string{"kubemend"},
		SchemaVersion: 39, Editable: true, Refresh: "30s", Time: timeRange{From: "now-6h", To: "now"},
		Links:       []link{{Title: "kubemend", Type: "dashboards", Tags: []string{"kubemend"}, AsDropdown: true, KeepTime: true, IncludeVars: true}},
		Annotations: marks{List: []annotation{}},
		Templating:  templating{List: slices.Concat([]variable{source}, more)},
	}
	y := 0
	for _, r := range rows {
		y = d.add(r, y)
	}
	return d
}

// anyOf returns a variable with several values, at first all.
func anyOf(name, label, query string) variable {
	return variable{
		Name: name, Label: label, Type: "query", Datasource: &chosen, Query: query, Definition: query, Refresh: refreshOn, Sort: byName,
		Multi: true, IncludeAll: true, AllValue: ".*", Current: &choice{Text: "All", Value: "$__all"},
	}
}

// oneOf returns a variable with one value.
func oneOf(name, label, query string) variable {
	return variable{Name: name, Label: label, Type: "query", Datasource: &chosen, Query: query, Definition: query, Refresh: refreshOn, Sort: byName}
}

// row is a heading and the panels below it, from left to right.
type row struct {
	title  string
	panels []panel
}

// add adds a row at y, and returns the y of the next row.
func (d *dashboard) add(r row, y int) int {
	d.put(panel{Type: "row", Title: r.title}, position{H: 1, W: columns, X: 0, Y: y})
	y++
	x, tallest := 0, 0
	for _, p := range r.panels {
		if x+p.GridPos.W > columns {
			x, y, tallest = 0, y+tallest, 0
		}
		d.put(p, position{H: p.GridPos.H, W: p.GridPos.W, X: x, Y: y})
		x, tallest = x+p.GridPos.W, max(tallest, p.GridPos.H)
	}
	return y + tallest
}

func (d *dashboard) put(p panel, at position) {
	p.ID, p.GridPos = len(d.Panels)+1, at
	d.Panels = append(d.Panels, p)
}

// query is an expression and the legend of its series.
type query struct{ expr, legend string }

func targets(instant bool, format string, queries []query) []target {
	all := make([]target, 0, len(queries))
	for i, q := range queries {
		all = append(all, target{
			RefID: string(rune('A' + i)), Datasource: chosen, Expr: q.expr, LegendFormat: q.legend, Instant: instant, Format: format,
		})
	}
	return all
}

// number shows a count, in red if bad is true and the count is not zero.
func number(title, description, expr string, bad bool) panel {
	steps := []threshold{{Color: "green"}}
	if bad {
		one := 1.0
		steps = append(steps, threshold{Color: "red", Value: &one})
	}
	p := value(title, description, expr, "none")
	p.FieldConfig.Defaults.Thresholds = &thresholds{Mode: "absolute", Steps: steps}
	return p
}

// value shows the last value of an expression.
func value(title, description, expr, unit string) panel {
	return panel{
		Type: "stat", Title: title, Description: description, Datasource: &chosen, GridPos: position{H: height / 2, W: statWidth},
		Targets: targets(true, "", []query{{expr: expr}}), FieldConfig: &fields{Defaults: defaults{Unit: unit}},
		Options: map[string]any{"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}, "colorMode": "value"},
	}
}

// course shows expressions over time.
func course(title, description, unit string, width int, queries ...query) panel {
	zero := 0.0
	return panel{
		Type: "timeseries", Title: title, Description: description, Datasource: &chosen, GridPos: position{H: height, W: width},
		Targets: targets(false, "", queries), FieldConfig: &fields{Defaults: defaults{Unit: unit, Min: &zero}},
		Options: map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom"}, "tooltip": map[string]any{"mode": "multi"}},
	}
}

// states shows states over time as bars.
func states(title, description string, width int, queries ...query) panel {
	return panel{
		Type: "state-timeline", Title: title, Description: description, Datasource: &chosen, GridPos: position{H: height, W: width},
		Targets: targets(false, "", queries), FieldConfig: &fields{},
	}
}

// list shows the labels of all present series.
func list(title, description string, width int, expr string) panel {
	return panel{
		Type: "table", Title: title, Description: description, Datasource: &chosen, GridPos: position{H: height, W: width},
		Targets: targets(true, "table", []query{{expr: expr}}), FieldConfig: &fields{},
	}
}

// table shows one column for each expression, named by its legend. The expressions must have the same labels. The first column sorts the
// rows, highest first.
func table(title, description string, width int, queries ...query) panel {
	p := list(title, description, width, "")
	names := map[string]string{}
	for i, q := range queries {
		names["Value #"+string(rune('A'+i))] = q.legend
	}
	p.Targets = targets(true, "table", queries)
	p.Transformations = []transformation{
		{ID: "merge", Options: map[string]any{}},
		{ID: "organize", Options: map[string]any{"excludeByName": map[string]bool{"Time": true}, "renameByName": names}},
	}
	p.Options = map[string]any{"sortBy": []any{map[string]any{"displayName": queries[0].legend, "desc": true}}}
	return p
}

// event marks the times at which an expression is more than 0, on all graphs of a board.
func event(name, expr, text string) annotation {
	return annotation{Name: name, Datasource: chosen, Enable: true, IconColor: "orange", Expr: expr, TitleFormat: name, TextFormat: text, Step: "60s"}
}
