package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// header is the first line of an asciicast.
type header struct {
	Version int    `json:"version"`
	Width   int    `json:"width"`
	Height  int    `json:"height"`
	Title   string `json:"title"`
}

// cast returns lines as an asciicast of version 2.
func cast(title string, lines []line) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(header{Version: 2, Width: columns, Height: rows, Title: title}); err != nil {
		return nil, err
	}
	for _, l := range lines {
		if err := e.Encode([]any{math.Round(l.at.Seconds()*1000) / 1000, "o", l.text + "\r\n"}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// parse reads an asciicast that cast has written: each event is one line.
func parse(content []byte) (string, []line, error) {
	first, events, _ := bytes.Cut(content, []byte("\n"))
	h := header{}
	if err := json.Unmarshal(first, &h); err != nil || h.Version != 2 {
		return "", nil, errors.Join(errors.New("the first line is no header of version 2"), err)
	}
	var lines []line
	for event := range bytes.Lines(events) {
		var (
			at         float64
			kind, text string
		)
		if err := json.Unmarshal(event, &[]any{&at, &kind, &text}); err != nil {
			return "", nil, fmt.Errorf("%s: %w", bytes.TrimSpace(event), err)
		}
		lines = append(lines, line{time.Duration(at * float64(time.Second)), strings.TrimRight(text, "\r\n")})
	}
	return h.Title, lines, nil
}
