"""Reflows prose lines that became too long. post.py ROOT"""
import pathlib,re,subprocess,sys,json,tokenize,io
ROOT=pathlib.Path(sys.argv[1])
out=subprocess.run(['.venv/bin/ruff','check','--select','E501','--output-format','json','.'],cwd=ROOT,capture_output=True,text=True).stdout
by={}
for d in json.loads(out): by.setdefault(d['filename'],set()).add(d['location']['row'])
for f,rows in by.items():
    p=pathlib.Path(f); src=p.read_text(); ls=src.split('\n'); i=min(rows)-1
    prose_rows=set()
    for tok in tokenize.generate_tokens(io.StringIO(src).readline):
        if tok.type==tokenize.COMMENT and ls[tok.start[0]-1].lstrip().startswith('#'): prose_rows.add(tok.start[0])
        if tok.type==tokenize.STRING and tok.string.startswith('"""') and ls[tok.start[0]-1].lstrip().startswith('"""'): prose_rows|=set(range(tok.start[0],tok.end[0]+1))
    shift=0
    while i<len(ls):
        l=ls[i]
        if len(l)>120:
            m=re.match(r'(\s*(?:# )?)',l); ind=m.group(1); s=l.strip()
            prose=i+1-shift in prose_rows
            if prose:
                words=l.split(' '); tail=[]
                close=''
                if l.endswith('"""') and not s.startswith('"""'): pass
                while len(' '.join(words))>118: tail.insert(0,words.pop())
                ls[i]=' '.join(words)
                if s.startswith('"""') and l.endswith('"""'):
                    # one-line docstring: summary, blank, rest is not possible; leave to hand
                    ls[i]=l; print('HAND',p.relative_to(ROOT),i+1,s[:80]); i+=1; continue
                nxt=ls[i+1] if i+1<len(ls) else ''
                nind=re.match(r'(\s*(?:# )?)',nxt).group(1)
                base=re.match(r'\s*',l).group(0)
                if nxt.strip() and nxt.strip()!='#' and nxt.strip()!='"""' and nind==ind and not re.match(r'\s*(# )?[-*|]',nxt): ls[i+1]=ind+' '.join(tail)+' '+nxt[len(ind):]
                else: ls.insert(i+1,ind+' '.join(tail)); shift+=1
            else: print('HAND',p.relative_to(ROOT),i+1,s[:100])
        i+=1
    p.write_text('\n'.join(ls))

out=subprocess.run(['.venv/bin/ruff','check','--select','E501','--output-format','json','.'],cwd=ROOT,capture_output=True,text=True).stdout
for d in sorted(json.loads(out),key=lambda d:(d['filename'],-d['location']['row'])):
    r=d['location']['row']
    subprocess.run(['.venv/bin/ruff','format','-q','--range',f'{r}:1-{r+1}:1',d['filename']],cwd=ROOT)
