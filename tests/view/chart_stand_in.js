// What XProf draws charts and tables with comes from the internet. This stands in for it: tables become plain HTML
// tables, charts become one line, so that a browser without the internet shows the numbers that XProf hands over.
(() => {
  class DataTable {
    constructor(data) {
      const given = typeof data === "string" ? JSON.parse(data) : data || {};
      this.cols = (given.cols || []).map((col) => ({...col}));
      this.rows = (given.rows || []).map((row) => row.c.map((cell) => ({...(cell || {v: null})})));
      this.p = {...(given.p || {})};
    }
    addColumn(type, label, id) {
      const col = typeof type === "object" ? {...type} : {type, label: label || "", id: id || ""};
      this.rows.forEach((row) => row.push({v: null}));
      return this.cols.push(col) - 1;
    }
    addRow(values) {
      const cells = values || this.cols.map(() => null);
      return this.rows.push(cells.map((v) => (v !== null && typeof v === "object" && "v" in v ? {...v} : {v}))) - 1;
    }
    addRows(rows) {
      if (Array.isArray(rows)) rows.forEach((row) => this.addRow(row));
      else for (let i = 0; i < rows; i++) this.addRow();
    }
    getNumberOfColumns() { return this.cols.length; }
    getNumberOfRows() { return this.rows.length; }
    getColumnId(i) { return this.cols[i].id; }
    getColumnLabel(i) { return this.cols[i].label; }
    setColumnLabel(i, label) { this.cols[i].label = label; }
    getColumnType(i) { return this.cols[i].type; }
    getColumnRole(i) { return (this.cols[i].p || {}).role || ""; }
    getColumnIndex(id) { return this.cols.findIndex((col) => col.id === id || col.label === id); }
    getColumnRange(i) {
      const values = this.rows.map((row) => row[i].v);
      return {min: Math.min(...values), max: Math.max(...values)};
    }
    getDistinctValues(i) { return [...new Set(this.rows.map((row) => row[i].v))].sort(); }
    getValue(row, i) { return this.rows[row][i].v; }
    getFormattedValue(row, i) { const cell = this.rows[row][i]; return String(cell.f ?? cell.v ?? ""); }
    setValue(row, i, v) { this.rows[row][i].v = v; }
    setFormattedValue(row, i, f) { this.rows[row][i].f = f; }
    setCell(row, i, v, f) { this.rows[row][i] = {v, f}; }
    setProperty() {}
    setProperties() {}
    setColumnProperty() {}
    setColumnProperties() {}
    setRowProperty() {}
    getProperty() { return null; }
    getTableProperty(name) { return this.p[name]; }
    getTableProperties() { return this.p; }
    insertColumn(at, type, label, id) {
      this.cols.splice(at, 0, typeof type === "object" ? type : {type, label: label || "", id: id || ""});
      this.rows.forEach((row) => row.splice(at, 0, {v: null}));
    }
    removeColumn(at) { this.cols.splice(at, 1); this.rows.forEach((row) => row.splice(at, 1)); }
    removeRow(at) { this.rows.splice(at, 1); }
    removeRows(at, count) { this.rows.splice(at, count); }
    getSortedRows(by) {
      const spec = Array.isArray(by) ? by[0] : by;
      const column = typeof spec === "number" ? spec : spec.column;
      const sign = spec.desc ? -1 : 1;
      const order = this.rows.map((_, row) => row);
      return order.sort((a, b) => sign * (this.getValue(a, column) > this.getValue(b, column) ? 1 : -1));
    }
    sort(by) { this.rows = this.getSortedRows(by).map((row) => this.rows[row]); }
    getFilteredRows(filters) {
      const fits = (row, f) => {
        const value = this.getValue(row, f.column);
        if ("value" in f && value !== f.value) return false;
        if (f.test && !f.test(value, row, f.column, this)) return false;
        return !(f.minValue != null && value < f.minValue) && !(f.maxValue != null && value > f.maxValue);
      };
      return this.rows.map((_, row) => row).filter((row) => filters.every((f) => fits(row, f)));
    }
    toJSON() { return JSON.stringify({cols: this.cols, rows: this.rows.map((c) => ({c})), p: this.p}); }
    clone() { return new DataTable(this.toJSON()); }
  }
  class DataView extends DataTable {
    constructor(table) { super(table.toJSON()); }
    setRows(rows) { this.rows = rows.map((row) => this.rows[row]); }
    setColumns(columns) {
      const made = columns.map((spec) => (typeof spec === "number" ? {sourceColumn: spec} : spec));
      const cell = (row, spec) => {
        const found = typeof spec.calc === "function" ? spec.calc(this, row) : this.rows[row][spec.sourceColumn];
        return found !== null && typeof found === "object" ? found : {v: found};
      };
      const rows = this.rows.map((_, row) => made.map((spec) => cell(row, spec)));
      this.cols = made.map((spec) => ({...(this.cols[spec.sourceColumn] || {}), ...spec}));
      this.rows = rows;
    }
    hideColumns(hidden) { this.setColumns(this.cols.map((_, i) => i).filter((i) => !hidden.includes(i))); }
    hideRows(hidden) { this.setRows(this.rows.map((_, i) => i).filter((i) => !hidden.includes(i))); }
    toDataTable() { return new DataTable(this.toJSON()); }
    getViewRows() { return this.rows.map((_, i) => i); }
    getTableRowIndex(i) { return i; }
    getTableColumnIndex(i) { return i; }
  }
  class Chart {
    constructor(element) { this.element = element; }
    draw(data) {
      if (data && this.element) this.element.textContent = `(a chart of ${data.getNumberOfRows()} rows)`;
    }
    getSelection() { return []; }
    setSelection() {}
    clearChart() {}
  }
  class Table extends Chart {
    draw(data) {
      if (!data || !this.element) return;
      const table = document.createElement("table");
      table.style.font = "12px sans-serif";
      const line = (cells, tag) => {
        const row = table.insertRow();
        cells.forEach((text) => {
          const cell = document.createElement(tag);
          cell.innerHTML = text;
          cell.style.border = "1px solid #ccc";
          row.append(cell);
        });
      };
      const columns = [...Array(data.getNumberOfColumns()).keys()];
      line(columns.map((i) => data.getColumnLabel(i) || ""), "th");
      for (let row = 0; row < Math.min(data.getNumberOfRows(), 12); row++) {
        line(columns.map((i) => data.getFormattedValue(row, i)), "td");
      }
      this.element.replaceChildren(table);
    }
  }
  class NumberFormat {
    constructor(options) { this.options = options || {}; }
    format(table, column) {
      const {pattern, suffix = "", prefix = "", fractionDigits = 2} = this.options;
      for (let row = 0; row < table.getNumberOfRows(); row++) {
        const value = Number(table.getValue(row, column));
        const percent = (pattern || "").includes("%");
        const shown = percent ? `${(100 * value).toFixed(2)}%` : value.toFixed(fractionDigits);
        table.setFormattedValue(row, column, prefix + shown + suffix);
      }
    }
    formatValue(value) { return String(value); }
  }
  const charts = "ScatterChart LineChart BarChart ColumnChart PieChart AreaChart ComboChart Histogram BubbleChart " +
    "CandlestickChart SteppedAreaChart OrgChart";
  const visualization = {Table, DataTable, DataView, NumberFormat, events: {addListener() {}, removeListener() {}}};
  charts.split(" ").forEach((name) => { visualization[name] = class extends Chart {}; });
  visualization.arrayToDataTable = (rows) => {
    const table = new DataTable();
    rows[0].forEach((label) => table.addColumn("string", label));
    table.addRows(rows.slice(1));
    return table;
  };
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  visualization.data = {
    sum,
    group(data, keys, aggregations) {
      const table = new DataTable(), groups = new Map();
      const columns = [...keys.map((key) => (typeof key === "number" ? key : key.column))];
      columns.forEach((i) => table.addColumn(data.getColumnType(i), data.getColumnLabel(i)));
      aggregations.forEach((one) => table.addColumn(one.type, data.getColumnLabel(one.column)));
      for (let row = 0; row < data.getNumberOfRows(); row++) {
        const key = JSON.stringify(columns.map((i) => data.getValue(row, i)));
        groups.set(key, [...(groups.get(key) || []), row]);
      }
      groups.forEach((members, key) => {
        const totals = aggregations.map((one) => one.aggregation(members.map((row) => data.getValue(row, one.column))));
        table.addRow([...JSON.parse(key), ...totals]);
      });
      return table;
    },
  };
  const ready = (callback) => setTimeout(callback, 0);
  window.google = {visualization, charts: {load() {}, safeLoad() {}, setOnLoadCallback: ready}};
})();
